"""One side of the feed benchmark: a driver with a warm session of two executors, run by its own Python.

``python -m benchmarks.feed_side SIDE FOLDER``; each line of JSON on standard input, ``[what, kind, size]``, is
answered by one line on standard output. TensorFlowOnSpark's cluster stays up from the first to the last: its feeding
is measured, and neither its start nor its end.
"""

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import _feed_nodes as nodes
from benchmarks._feed_rows import KINDS, path_of, write_rows

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "2g",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
}
WORKERS = 2
BATCH = 256  # of DataFeed


class Frames:
    """DataFrames of the rows: held in the executors' memory, or read from the files each time."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._held: dict[tuple[str, str], Any] = {}

    def in_files(self, kind: str, size: str) -> Any:
        """Return rows that Spark reads from Parquet."""
        return self._spark.read.parquet(path_of(self._folder, kind, size))

    def in_memory(self, kind: str, size: str) -> Any:
        """Return rows that Spark holds in memory, those of one kind at a time."""
        if (kind, size) not in self._held:
            for other in [key for key in self._held if key[0] != kind]:
                self._held.pop(other).unpersist(blocking=True)
            self._held[kind, size] = self.in_files(kind, size).cache()
            self._held[kind, size].write.format("noop").mode("overwrite").save()
        return self._held[kind, size]


class Emberflow:
    """All sides that run in this library's environment."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._frames = Frames(spark, folder)

    def write(self, kind: str, size: str) -> None:
        """Write a kind's rows; `size` is the scale."""
        write_rows(self._spark, self._folder, kind, float(size))

    def limit(self, kind: str, size: str) -> int:
        """Count the rows in `mapInArrow`, directed to two tasks as a run's are."""
        return self._count(self._frames.in_memory(kind, size))

    def limit_files(self, kind: str, size: str) -> int:
        """Count the rows of the files likewise."""
        return self._count(self._frames.in_files(kind, size))

    def sink(self, kind: str, size: str) -> int:
        """Bring the rows to the nodes."""
        return self._run(nodes.count, self._frames.in_memory(kind, size))

    def sink_files(self, kind: str, size: str) -> int:
        """Bring the rows of the files to the nodes, through Spark."""
        return self._run(nodes.count, self._frames.in_files(kind, size))

    def parquet(self, kind: str, size: str) -> int:
        """Bring the rows of the files to the nodes, which read them themselves."""
        import emberflow as ef

        return self._run(nodes.count, ef.Parquet(path_of(self._folder, kind, size)))

    def fit(self, kind: str, size: str) -> int:
        """Train on the rows."""
        return self._run(functools.partial(nodes.fit, kind=kind), self._frames.in_memory(kind, size))

    def epochs(self, kind: str, size: str) -> list[Any]:
        """Time later epochs within the nodes."""
        import emberflow as ef

        timed = functools.partial(nodes.epochs, kind=kind)
        run = ef.run(timed, workers=WORKERS, data=self._frames.in_memory(kind, size), verbose=False)
        return [report.value for report in run.reports]

    def close(self) -> None:
        """Nothing is left to close."""

    def _count(self, frame: Any) -> int:
        from emberflow._driver.row_routing import ARROW_BATCHES, directed_rows, read_data
        from emberflow._plan.stages import Stage

        def tally(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

        stage = Stage(first_rank=0, ranks=WORKERS, gpus=0)
        with ARROW_BATCHES.applied(self._spark):
            counts = directed_rows(read_data(frame), stage, WORKERS).mapInArrow(tally, "rows long").collect()
        return sum(row.rows for row in counts)

    def _run(self, fn: Any, data: Any) -> int:
        import emberflow as ef

        run = ef.run(fn, workers=WORKERS, data=data, spark=self._spark, verbose=False)
        return sum(report.value for report in run.reports)


class TensorFlowOnSpark:
    """Its DataFeed: the nodes take batches of rows, and do nothing with them."""

    batch = BATCH

    def __init__(self, spark: Any, folder: Path) -> None:
        self._folder = folder
        self._frames = Frames(spark, folder)
        batch = self.batch

        def take(args: Any, ctx: Any) -> None:
            feed = ctx.get_data_feed(train_mode=True)
            rows, path = 0, Path(args) / f"tfos-{ctx.executor_id}"
            aside = path.with_name(f"next-{path.name}")
            while not feed.should_stop():
                rows += len(feed.next_batch(batch))
                aside.write_text(str(rows))
                aside.rename(path)  # whoever reads it finds a whole number

        self._cluster = tfos_cluster(spark, take, str(folder))

    def tfos(self, kind: str, size: str) -> int:
        """Feed the rows, as its own pipeline does."""
        rows = int(KINDS[kind].tfos_rows * float(os.environ["FEED_SCALE"]))
        return self.fed(self._frames.in_memory(kind, size).rdd, rows)

    def fed(self, rdd: Any, rows: int) -> int:
        """Feed an RDD of so many rows; return how many the nodes have taken when it comes back.

        A node notes whole batches only, and may still have to note one: up to two less a node may show.
        """
        before = self._taken()
        self._cluster.train(rdd, num_epochs=1)
        taken = self._taken() - before
        return rows if abs(taken - rows) <= 2 * WORKERS * self.batch else taken

    def close(self) -> None:
        """End the nodes."""
        self._cluster.shutdown(grace_secs=0)

    def _taken(self) -> int:
        return sum(int(path.read_text()) for path in self._folder.glob("tfos-*") if path.is_file())


def tfos_cluster(spark: Any, fn: Any, args: Any) -> Any:
    """Return TensorFlowOnSpark's cluster of two nodes that run the function."""
    from tensorflowonspark import TFCluster

    return TFCluster.run(
        spark.sparkContext,
        fn,
        args,
        num_executors=WORKERS,
        num_ps=0,
        input_mode=TFCluster.InputMode.SPARK,
    )


def session(name: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,2048]").appName(f"feed-{name}")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def serve(sides: Mapping[str, Callable[[Any, Path], Any]]) -> None:
    """Be the side that the command line names; answer what is asked, until the input ends."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    spark = session(name)
    application = spark.sparkContext.applicationId
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    side = sides[name](spark, folder)
    print(json.dumps({"application": application}), file=answers, flush=True)
    for line in sys.stdin:
        what, kind, size = json.loads(line)
        started = time.perf_counter()
        value = getattr(side, what)(kind, size)
        seconds = time.perf_counter() - started
        print(json.dumps({"value": value, "seconds": seconds}), file=answers, flush=True)
    side.close()
    spark.stop()


if __name__ == "__main__":
    serve({"emberflow": Emberflow, "tfos": TensorFlowOnSpark})
