"""Records of real runs on a real HDFS."""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emberflow import storage
from emberflow.local.hadoop import LocalHadoop
from tests.spark.remote_records import check_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.full
@pytest.mark.timeout(600)
def test_runs_are_recorded_listed_and_shown_on_hdfs(
    spark_cluster: "SparkSession",
    hdfs: LocalHadoop,
    nothing_left: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = storage.join(hdfs.default_fs, hdfs.home, f"runs-{uuid.uuid4().hex}")
    for name, value in hdfs.environment().items():
        monkeypatch.setenv(name, value)
    check_records(spark_cluster, url, tmp_path, monkeypatch)
