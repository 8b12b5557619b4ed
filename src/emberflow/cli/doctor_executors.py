"""Asks the executors of a cluster for their versions: ``python -m emberflow.cli.doctor_executors MASTER``.

Its last line of output is JSON. It is a separate program so that doctor can kill it when no executor answers.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

TASKS_AT_MOST = 64  # a sample: a large cluster need not be asked executor by executor


def ask(master: str) -> dict[str, Any]:
    """Start a session on `master`; return its slots, its memory limit and the answer of one task on each."""
    from pyspark.sql import SparkSession

    from emberflow._driver.allocation import ENABLED
    from emberflow._driver.cluster_facts import is_true
    from emberflow._driver.interpreter import driver_python

    builder = SparkSession.builder.appName("emberflow doctor")
    if master.startswith("sc://"):
        spark, slots, memory = builder.remote(master).getOrCreate(), None, None
    else:
        spark = builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
        slots = spark.sparkContext.defaultParallelism
        memory = _memory(spark)
    is_allocating = is_true(spark.conf.get(ENABLED, "false"))
    try:
        tasks = min(slots or 2, TASKS_AT_MOST)
        with driver_python(spark):  # as `ef.run` does
            answers = spark.range(0, tasks, 1, tasks).mapInArrow(_answer, "answer string")
        rows = answers.collect()
        if slots is not None:
            from emberflow._driver.profiles import count_slots

            slots = count_slots(spark)  # correct only after executors have registered
    finally:
        spark.stop()
    return {
        "slots": slots,
        "memory": memory,
        "answers": [json.loads(row["answer"]) for row in rows],
        "is_allocating": is_allocating,
    }


def _memory(spark: Any) -> dict[str, Any] | None:
    """Return what executors have outside of their JVMs, where that is limited."""
    from dataclasses import asdict

    from emberflow._driver.executor_memory import executor_memory, limits_memory

    master, conf = str(spark.sparkContext.master), spark.sparkContext.getConf()
    return asdict(executor_memory(conf.get, master)) if limits_memory(master) else None


def _answer(batches: Iterator[Any]) -> Iterator[Any]:
    """Describe, on an executor, its Python and packages."""
    import importlib
    import json
    import socket
    import sys

    import pyarrow as pa

    for _ in batches:
        pass
    answer = {"host": socket.gethostname(), "python": list(sys.version_info[:2]), "program": sys.executable}
    for name in ("tensorflow", "keras", "pandas", "emberflow"):
        try:
            answer[name] = str(importlib.import_module(name).__version__)
        except Exception as error:  # noqa: BLE001 - doctor reports any error
            answer[f"{name}_error"] = f"{type(error).__name__}: {error}"
    yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})


if __name__ == "__main__":
    found = ask(sys.argv[1])
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    sys.stdout.flush()
    os._exit(0)  # do not wait for a JVM that is slow to end
