"""Executors whose Python has no emberflow: the error names theirs and the driver's, and what to set."""

import sys
import time
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow.errors import ClusterError
from tests.docs import fresh_environment as fresh

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BARE = f"{sys.base_prefix}/bin/python3.{sys.version_info[1]}"  # without pyarrow: Spark's own worker gives up
SETTING = "spark.sql.execution.pyspark.python"

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def half(tmp_path: Path) -> str:
    """A Python that has what Spark needs, but no emberflow."""
    python, packages = fresh.bare_environment(tmp_path / "env")
    for name in ("pyarrow", "numpy", "pandas", "pytz", "python-dateutil", "six", "tzdata"):
        fresh.link(distribution(name), packages)
    return str(python)


def load_nothing() -> Any:
    return lambda x: x


def check_named(error: Exception, program: str, module: str) -> None:
    text = str(error)
    assert f"({program})" in text
    assert f"has no module {module}" in text
    assert f"the driver's Python {sys.version.split()[0]} ({sys.executable})" in text


@pytest.mark.fault
@pytest.mark.parametrize("kind", [pytest.param("bare", marks=pytest.mark.full), "half"])
def test_both_interpreters_are_named(
    kind: str, spark_cluster: "SparkSession", half: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, module = (half, "emberflow") if kind == "half" else (BARE, "pyarrow")
    monkeypatch.setattr(spark_cluster.sparkContext, "pythonExec", program)  # as PYSPARK_PYTHON would
    started = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        ef.run(lambda ctx: ctx.rank, workers=2, spark=spark_cluster, verbose=False)
    print(f"fault: executors without {module}, {time.monotonic() - started:.1f} s")
    check_named(caught.value, program, module)
    assert caught.value.fix == f"Before the session starts: export PYSPARK_PYTHON={sys.executable}"
    scored = ef.predict(spark_cluster.range(3), load_nothing, inputs="id", outputs="same long")
    with pytest.raises(Exception, match=f"o module '?{module}|named '{module}") as late:  # Spark's own class
        scored.collect()
    if kind == "half":
        check_named(late.value, program, module)


@pytest.mark.full
@pytest.mark.fault
def test_on_connect_the_fix_names_a_setting_that_works(spark_connect: "SparkSession", half: str) -> None:
    spark_connect.conf.set(SETTING, half)
    try:
        with pytest.raises(ClusterError) as caught:
            ef.run(
                lambda ctx: ctx.rank, workers=2, spark=spark_connect, verbose=False, allow_unencrypted=True
            )
        check_named(caught.value, half, "emberflow")
        assert f'spark.conf.set("{SETTING}"' in caught.value.fix
        spark_connect.conf.set(SETTING, sys.executable)
        result = ef.run(
            lambda ctx: ctx.rank, workers=2, spark=spark_connect, verbose=False, allow_unencrypted=True
        )
    finally:
        spark_connect.conf.unset(SETTING)
    assert [report.value for report in result.reports] == [0, 1]
