"""Records of real runs on S3, by a server on loopback."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emberflow import storage
from tests.hadoop.s3_server import s3_server
from tests.spark.remote_records import check_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def runs_on_s3(spark_cluster: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A URL there; the session has Hadoop's settings, and other processes have Amazon's variables."""
    configuration = spark_cluster.sparkContext._jsc.hadoopConfiguration()
    before = storage.current_settings()
    with s3_server("records") as endpoint:
        settings = {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": "testing",
            "fs.s3a.secret.key": "testing",
        }
        for name, value in settings.items():
            configuration.set(name, value)
        for name, value in (
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", "testing"),
            ("AWS_SECRET_ACCESS_KEY", "testing"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
        ):
            monkeypatch.setenv(name, value)
        yield "s3://records/runs"
        for name in settings:
            configuration.unset(name)
        storage.apply_settings(before)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_runs_are_recorded_listed_and_shown_on_s3(
    spark_cluster: "SparkSession",
    runs_on_s3: str,
    nothing_left: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_records(spark_cluster, runs_on_s3, tmp_path, monkeypatch)
