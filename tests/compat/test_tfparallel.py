"""`TFParallel` as old programs use it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tensorflowonspark import TFParallel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.full]


@pytest.mark.parametrize("use_barrier", [True, False])
def test_parallel_runs(spark_standalone: "SparkSession", tmp_path: Path, use_barrier: bool) -> None:
    def write(args: Any, ctx: Any) -> None:
        facts = [
            ctx.worker_num,
            ctx.executor_id,
            ctx.num_workers,
            ctx.job_name,
            ctx.cluster_spec,
            ctx.defaultFS,
        ]
        Path(args["folder"], f"{ctx.worker_num}.json").write_text(json.dumps(facts))

    sc = spark_standalone.sparkContext
    TFParallel.run(sc, write, {"folder": str(tmp_path)}, 2, use_barrier)
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert found == [[number, number, 2, "", {}, "file://"] for number in range(2)]

    def fail(args: Any, ctx: Any) -> None:
        raise ValueError("in one of them")

    with pytest.raises(Exception, match="in one of them"):
        TFParallel.run(sc, fail, {}, 2, use_barrier)
