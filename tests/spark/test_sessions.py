"""Every kind of cluster that the tests use: two slots at once, and the Python of the driver."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def who_am_i(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark import BarrierTaskContext

    for _ in batches:
        pass
    met = BarrierTaskContext.get().allGather(str(os.getpid()))
    yield pa.RecordBatch.from_pydict({"python": [sys.executable], "met": [len(set(met))]})


def test_two_tasks_meet_and_run_the_drivers_python(spark: "SparkSession", nothing_left: None) -> None:
    rows = spark.range(0, 2, 1, 2).mapInArrow(who_am_i, "python string, met long", barrier=True).collect()
    assert [(row.python, row.met) for row in rows] == [(sys.executable, 2)] * 2
