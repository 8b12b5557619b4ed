"""Dynamic allocation on a real YARN: rows, a fit, a killed node, a task that Spark starts again, a live cluster."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from emberflow.local.hadoop import LocalHadoop
from tests.hadoop.allocating_driver import ROWS

CONF = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "5s",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
    "spark.executor.instances": "0",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.yarn.am.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
}


@pytest.mark.full
@pytest.mark.fault
@pytest.mark.timeout(1200)
def test_on_yarn_nodes_come_with_their_executors_and_executors_go(
    hadoop: LocalHadoop, tmp_path: Path, nothing_left: None
) -> None:
    settings = [word for pair in CONF.items() for word in ("--conf", "=".join(pair))]
    submit = [
        f"{os.environ['SPARK_HOME']}/bin/spark-submit",
        "--properties-file",
        str(hadoop.properties_file),
    ]
    program = [str(Path(__file__).with_name("allocating_driver.py")), str(tmp_path / "found.json")]
    done = subprocess.run(
        [*submit, *settings, *program],
        env=os.environ | hadoop.environment(),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["master"], found["executors_before"], found["executors_after"]) == ("yarn", 0, 0)
    assert all(found["shards"])
    assert sorted(value for shard in found["shards"] for value in shard) == list(range(ROWS))
    np.testing.assert_allclose(*found["weights"], rtol=1e-5, atol=1e-6)
    assert found["restarted"] == [[2, [1, 1]]] * 2
    assert "executor" in found["lost"]
    assert found["fed"] == [ROWS, ROWS]
    assert [sum(each) for each in zip(*found["sums"], strict=True)] == [sum(range(ROWS))] * 2
