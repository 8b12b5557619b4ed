"""The MNIST walk-through from start to end: prepare, train, predict, both ways, and continue from the checkpoint."""

from pathlib import Path

import pytest

from emberflow.local.cluster import local_cluster
from tests.hadoop.walkthrough import FILES_LINE, SPARK_LINE, Walk, command_runner, write_tiny_mnist
from tests.sessions import Sessions

TINY = {"EPOCHS": "4", "PARTITIONS": "3", "WORKERS": "2"}
TEST_ROWS = 48


@pytest.mark.timeout(900)
def test_each_step_works_on_local_disk(tmp_path: Path, sessions: Sessions, nothing_left: None) -> None:
    images = tmp_path / "images"
    images.mkdir()
    write_tiny_mnist(images, test=TEST_ROWS)
    root = str(tmp_path / "mnist")
    step = command_runner(TINY | {"MNIST": root}, tmp_path)
    walk = Walk(step=step, root=root, images=images, test_rows=TEST_ROWS, least=0.9)
    sessions.close()
    with local_cluster(workers=3, cores=1) as cluster, cluster.session("walkthrough"):
        walk.prepare(partitions=3)
        walk.train_and_predict("spark", SPARK_LINE)
        assert "The evaluator's last: " in walk.train_and_predict("files", FILES_LINE)
