"""Executors whose Python has no emberflow: the error names theirs and the driver's, and what to set."""

import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BARE = f"{sys.base_prefix}/bin/python3.{sys.version_info[1]}"  # without emberflow
SETTING = "spark.sql.execution.pyspark.python"

pytestmark = pytest.mark.usefixtures("nothing_left")


def load_nothing() -> Any:
    return lambda x: x


def check_named(error: Exception) -> None:
    text = str(error)
    assert f"({BARE})" in text
    assert "has no module emberflow" in text
    assert f"the driver's Python {sys.version.split()[0]} ({sys.executable})" in text


def test_both_interpreters_are_named(spark_cluster: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_cluster.sparkContext, "pythonExec", BARE)  # as PYSPARK_PYTHON would
    started = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        ef.run(lambda ctx: ctx.rank, workers=2, spark=spark_cluster, verbose=False)
    print(f"fault: executors without emberflow, {time.monotonic() - started:.1f} s")
    check_named(caught.value)
    assert caught.value.fix == f"Before the session starts: export PYSPARK_PYTHON={sys.executable}"
    scored = ef.predict(spark_cluster.range(3), load_nothing, inputs="id", outputs="same long")
    with pytest.raises(Exception, match="has no module emberflow") as caught_late:  # Spark's own error class
        scored.collect()
    check_named(caught_late.value)


def test_on_connect_the_fix_names_a_setting_that_works(spark_connect: "SparkSession") -> None:
    spark_connect.conf.set(SETTING, BARE)
    try:
        with pytest.raises(ClusterError) as caught:
            ef.run(
                lambda ctx: ctx.rank, workers=2, spark=spark_connect, verbose=False, allow_unencrypted=True
            )
        check_named(caught.value)
        assert f'spark.conf.set("{SETTING}"' in caught.value.fix
        spark_connect.conf.set(SETTING, sys.executable)
        result = ef.run(
            lambda ctx: ctx.rank, workers=2, spark=spark_connect, verbose=False, allow_unencrypted=True
        )
    finally:
        spark_connect.conf.unset(SETTING)
    assert [report.value for report in result.reports] == [0, 1]
