"""A program for YARN that loses a node; the error goes to a folder on HDFS.

    spark-submit --master yarn lost_node.py FOLDER WAY

WAY is "memory" (a node takes more than its container may have), "executor" (the JVM of its container is killed),
"node" (the node itself is killed) or "wait" (somebody else ends the application).
"""

import json
import os
import signal
import sys
from typing import Any

import emberflow as ef


def take_memory(ctx: Any) -> None:
    import threading

    import numpy as np

    if ctx.rank == 1:
        print("I take two gigabytes")
        held = np.ones(2 << 30, np.uint8)
        threading.Event().wait(120)
        assert held[0]
    threading.Event().wait(120)


def kill_executor(ctx: Any) -> None:
    import psutil

    if ctx.rank == 1:
        parents = psutil.Process().parents()
        jvm = next(parent for parent in parents if "java" in parent.name())
        jvm.send_signal(signal.SIGKILL)
    import threading

    threading.Event().wait(120)


def kill_node(ctx: Any) -> None:
    if ctx.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def wait(ctx: Any) -> None:
    import threading

    if ctx.rank == 1:
        print("the nodes are up")
    threading.Event().wait(120)


WAYS = {"wait": wait, "memory": take_memory, "executor": kill_executor, "node": kill_node}


def main() -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("lost").getOrCreate()
    application = spark.sparkContext.applicationId
    print(application, flush=True)
    try:
        ef.run(WAYS[sys.argv[2]], workers=2, spark=spark)
        found = {"error": "none"}
    except ef.NodeLostError as error:
        found = {"error": str(error), "rank": error.rank}
    except ef.ClusterError as error:
        sys.exit(str(error))
    text = json.dumps(found | {"application": application})
    spark.createDataFrame([(text,)], "value string").coalesce(1).write.text(sys.argv[1])
    spark.stop()


if __name__ == "__main__":
    main()
