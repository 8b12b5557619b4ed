"""Keras callbacks that write to S3, on real executors: complete at the end, and resumed after a killed chief."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow import storage
from tests.tensorflow.remote_training import EPOCHS, KILLED_IN, Train

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(600)]

CHECKPOINTS = [f"{epoch:02d}.keras" for epoch in range(1, EPOCHS + 1)]


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """The environment of a server of S3 on loopback that has a bucket ``runs``."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        storage.file_system("s3://runs")[0].mkdir("runs")
        yield environment
    server.stop()


def names_below(url: str) -> list[str]:
    """Return the files there but those of the exported model and event files."""
    found = [file.path.removeprefix(f"{url}/") for file in storage.list_files(url)]
    return [name for name in found if not name.startswith(("export/", "logs/"))]


def check_files(url: str, tmp_path: Path, weights: Any) -> None:
    """All callbacks have written, and what they wrote can be read."""
    assert names_below(url) == [*CHECKPOINTS, "log.csv", "notes/0.txt", "notes/1.txt"]
    rows = storage.read_bytes(f"{url}/log.csv").decode().splitlines()
    assert [row.partition(",")[0] for row in rows] == ["epoch", *map(str, range(EPOCHS))]
    assert any("tfevents" in file.path for file in storage.list_files(f"{url}/logs/train"))
    storage.get_folder(f"{url}/export/1", tmp_path / "export")
    assert (tmp_path / "export" / "saved_model.pb").exists()
    import zipfile

    import h5py

    (tmp_path / "last.keras").write_bytes(storage.read_bytes(f"{url}/{CHECKPOINTS[-1]}"))
    with zipfile.ZipFile(tmp_path / "last.keras") as archive:
        archive.extract("model.weights.h5", tmp_path)
    with h5py.File(tmp_path / "model.weights.h5") as saved:
        assert saved["layers/dense/vars/0"][:].tolist() == weights[0]


def test_two_workers_write_to_s3(spark_cluster: "SparkSession", s3: dict[str, str], tmp_path: Path) -> None:
    url = "s3://runs/plain"
    first, second = ef.run(Train(url, s3), workers=2, spark=spark_cluster, verbose=False).reports
    assert first.value["epochs"] == second.value["epochs"] == list(range(EPOCHS))
    check_files(url, tmp_path, first.value["weights"])


@pytest.mark.full
@pytest.mark.fault
def test_callbacks_on_s3_are_resumed_after_the_chief_was_killed(
    spark_cluster: "SparkSession", s3: dict[str, str], tmp_path: Path
) -> None:
    url = "s3://runs/killed"
    train = Train(url, s3, dies=True)
    first, second = ef.run(train, workers=2, spark=spark_cluster, verbose=False, max_restarts=1).reports
    assert first.value["attempt"] == 1
    assert first.value["epochs"] == second.value["epochs"] == list(range(KILLED_IN, EPOCHS))
    check_files(url, tmp_path, first.value["weights"])
