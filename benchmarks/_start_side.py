"""One side of the start benchmark: a driver with a warm session of two executors, run by its own Python.

``python _start_side.py SIDE FOLDER``; each line on standard input is a measurement to make: ``line`` until the first
line of the function on both nodes, ``tensorflow`` until that line and an import of TensorFlow. The answer is one
line of JSON on standard output. Nothing but PySpark and the side's own library is imported here.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
}


def stamp(folder: str, rank: int, what: str) -> None:
    """Note the time of this moment on this node; all nodes are on one host and share its clock."""
    if what == "tensorflow":
        import tensorflow  # noqa: F401
    moment = time.time()
    Path(folder, f"{rank}.tmp").write_text(repr(moment))
    Path(folder, f"{rank}.tmp").rename(Path(folder, str(rank)))


def emberflow_side(spark: Any) -> Callable[[str, str], None]:
    """Run by ef.run."""
    import emberflow as ef

    def launch(folder: str, what: str) -> None:
        ef.run(lambda ctx: stamp(folder, ctx.rank, what), workers=2, spark=spark, verbose=False)

    return launch


def distributor_side(spark: Any) -> Callable[[str, str], None]:  # noqa: ARG001 - it finds the session itself
    """Run by spark-tensorflow-distributor."""
    from spark_tensorflow_distributor import MirroredStrategyRunner

    def launch(folder: str, what: str) -> None:
        def train() -> None:
            stamp(folder, json.loads(os.environ["TF_CONFIG"])["task"]["index"], what)

        MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True).run(train)

    return launch


def tfos_side(spark: Any) -> Callable[[str, str], None]:
    """Run by TensorFlowOnSpark, where the program reads its own data."""
    from tensorflowonspark import TFCluster

    def launch(folder: str, what: str) -> None:
        def train(_: Any, ctx: Any) -> None:
            stamp(folder, ctx.executor_id, what)

        mode = TFCluster.InputMode.TENSORFLOW
        cluster = TFCluster.run(spark.sparkContext, train, [], num_executors=2, num_ps=0, input_mode=mode)
        cluster.shutdown()

    return launch


def measure(launch: Callable[[str, str], None], folder: Path, what: str) -> dict[str, float]:
    """Launch once; return the seconds until both nodes were there, and until the call came back."""
    folder.mkdir()
    started = time.time()
    launch(str(folder), what)
    ended = time.time()
    moments = [float(path.read_text()) for path in folder.iterdir()]
    assert len(moments) == 2, moments
    return {"seconds": max(moments) - started, "until_return": ended - started}


def main() -> None:
    """Start the session, warm it up, answer measurements until standard input ends."""
    side, folder = sys.argv[1], Path(sys.argv[2])
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName(f"start-{side}")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    application = spark.sparkContext.applicationId
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    launch = {"emberflow": emberflow_side, "distributor": distributor_side, "tfos": tfos_side}[side](spark)
    measure(launch, folder / "warm-up", "line")
    print(json.dumps({"application": application}), file=answers, flush=True)
    for number, line in enumerate(sys.stdin):
        print(json.dumps(measure(launch, folder / str(number), line.strip())), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
