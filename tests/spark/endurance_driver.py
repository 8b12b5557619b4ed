"""A driver that runs a hundred times: ``python -m tests.spark.endurance_driver MASTER``.

It prints a line of JSON after each run: what it holds, and what Spark's own processes below it hold.
"""

import gc
import json
import os
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import emberflow as ef
from tests.sessions import DAEMON, SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS = 100
KINDS = {DAEMON: "python", "CoarseGrainedExecutorBackend": "executors", "SparkSubmit": "jvm"}


def holdings() -> dict[str, int]:
    """Count descriptors, threads, bytes, processes and folders."""
    gc.collect()
    me = psutil.Process()
    found = {
        "driver descriptors": me.num_fds(),
        "driver threads": threading.active_count(),
        "driver bytes": me.memory_info().rss,
        "folders": len(ours_in(Path(tempfile.gettempdir()))),
    }
    for process in me.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            for name, value in holdings_of(process).items():
                found[name] = found.get(name, 0) + value
    return found


def holdings_of(process: psutil.Process) -> dict[str, int]:
    """Count what one process below this one holds, by its kind."""
    command = " ".join(process.cmdline())
    kind = next((kind for word, kind in KINDS.items() if word in command), "others")
    found = {f"{kind} processes": 1, f"{kind} descriptors": process.num_fds()}
    if kind == "python":
        found["python bytes"] = process.memory_info().rss
    return found


def ours_in(folder: Path) -> list[str]:
    """Name the folders there but for those of Spark's block managers, which Spark cleans itself, unless ours."""
    return [name for name, _, _ in os.walk(folder) if "blockmgr-" not in name or "emberflow-" in name]


def fail(ctx: Any) -> None:
    raise ValueError(ctx.rank)


def run_once(number: int, spark: "SparkSession", frame: "DataFrame") -> None:
    """Run a tiny function; every fifth time with rows, every tenth time one that fails."""
    if number % 10 == 9:
        try:
            ef.run(fail, workers=2, spark=spark, verbose=False)
        except ef.NodeFailedError:
            return
    if number % 5 == 4:
        result = ef.run(
            lambda ctx: sum(batch.num_rows for batch in ctx.arrow()), workers=2, data=frame, verbose=False
        )
        assert sum(report.value for report in result.reports) == 1000
    else:
        result = ef.run(lambda ctx: ctx.rank, workers=2, spark=spark, verbose=False)
        assert [report.value for report in result.reports] == [0, 1]


def main(master: str) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()
    frame = spark.range(1000)
    for number in range(RUNS):
        run_once(number, spark, frame)
        print(json.dumps(holdings()), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
