"""One side of the benchmark of live clusters: a driver with a warm session of two executors, run by its own Python.

``python -m benchmarks.live_side SIDE FOLDER``, asked as `benchmarks.feed_side` is. All clusters stay up from the
first question to the last: their feeding is measured, and neither their start nor their end.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import feed_side
from benchmarks._feed_rows import FILES, KINDS, PIXELS

TUPLES = {"all": 40_000, "tfos": 20_000}
PR_SET_CHILD_SUBREAPER = 36


def tuples(spark: Any, size: str) -> Any:
    """Return an RDD of (784 floats, label) that Spark holds in memory, as PySpark does: pickled."""

    def fill(numbers: Iterator[int]) -> Iterator[Any]:
        import numpy as np

        for number in numbers:
            yield np.random.default_rng(number).random(PIXELS).tolist(), number % 10

    rdd = spark.sparkContext.parallelize(range(tuple_rows(size)), FILES).mapPartitions(fill).cache()
    rdd.count()
    return rdd


def tuple_rows(size: str) -> int:
    """Return how many there are."""
    return int(TUPLES[size] * float(os.environ["FEED_SCALE"]))


class Tuples:
    """The RDDs of tuples of one session."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._held: dict[str, Any] = {}

    def in_memory(self, size: str) -> Any:
        """Return an RDD, made once."""
        if size not in self._held:
            self._held[size] = tuples(self._spark, size)
        return self._held[size]


def take_rounds(ctx: Any) -> None:
    """Take the rows of each round, and do nothing with them."""
    for each in ctx.rounds():
        deque(each.arrow(), maxlen=0)


def take_stream(ctx: Any) -> None:
    """Take batches of as many rows as TensorFlowOnSpark's nodes do."""
    stream = ctx.stream()
    while stream.next(feed_side.BATCH) is not None:
        pass


def reply(ctx: Any) -> None:
    """Reply one number per row."""
    import numpy as np

    for request in ctx.requests():
        request.reply(np.zeros(request.rows, np.float32))


class Emberflow(feed_side.Emberflow):
    """Live clusters, one for each way to take rows, and Spark without any node: the limits."""

    def __init__(self, spark: Any, folder: Path) -> None:
        import emberflow as ef

        super().__init__(spark, folder)
        self._tuples = Tuples(spark)
        workers = feed_side.WORKERS

        def started(fn: Callable[[Any], None]) -> ef.Cluster:
            return ef.cluster(fn, workers=workers, spark=spark, verbose=False)

        # A cluster's columns stay the same as long as it lives: tuples have clusters of their own.
        self._rounds, self._rounds_of_tuples = started(take_rounds), started(take_rounds)
        self._stream, self._stream_of_tuples = started(take_stream), started(take_stream)
        self._requests = started(reply)
        self._clusters = (
            self._rounds,
            self._rounds_of_tuples,
            self._stream,
            self._stream_of_tuples,
            self._requests,
        )

    def rounds(self, kind: str, size: str) -> int:
        """Train on a DataFrame in rounds."""
        return self._rounds.train(self._frames.in_memory(kind, size)).rows

    def stream(self, kind: str, size: str) -> int:
        """Train on a DataFrame as a stream."""
        return self._stream.train(self._frames.in_memory(kind, size)).rows

    def rounds_tuples(self, _: str, size: str) -> int:
        """Train on an RDD of tuples in rounds."""
        return self._rounds_of_tuples.train(self._tuples.in_memory(size)).rows

    def stream_tuples(self, _: str, size: str) -> int:
        """Train on an RDD of tuples as a stream."""
        return self._stream_of_tuples.train(self._tuples.in_memory(size)).rows

    def infer(self, kind: str, size: str) -> int:
        """Infer on a DataFrame; all its columns and the results are computed, and dropped."""
        return self._dropped(
            self._requests.infer(self._frames.in_memory(kind, size), schema="prediction float")
        )

    def limit_stream(self, kind: str, size: str) -> int:
        """Bring the rows to a Python function that drops them, without a shuffle."""
        from emberflow._driver.row_routing import ARROW_BATCHES

        def drop(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

        with ARROW_BATCHES.applied(self._spark):
            counts = self._frames.in_memory(kind, size).mapInArrow(drop, "rows long").collect()
        return sum(row.rows for row in counts)

    def limit_tuples(self, _: str, size: str) -> int:
        """Bring the tuples to a Python function that drops them."""
        return sum(self._tuples.in_memory(size).mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect())

    def limit_infer(self, kind: str, size: str) -> int:
        """Bring the rows to a Python function that adds a number to each."""

        def add(batches: Iterator[Any]) -> Iterator[Any]:
            import numpy as np
            import pyarrow as pa

            for batch in batches:
                yield batch.append_column("prediction", pa.array(np.zeros(batch.num_rows, np.float32)))

        schema = f"{KINDS[kind].schema}, prediction float"
        return self._dropped(self._frames.in_memory(kind, size).mapInArrow(add, schema))

    def close(self) -> None:
        """End the nodes."""
        for cluster in self._clusters:
            cluster.stop()

    def _dropped(self, frame: Any) -> int:
        """Compute all rows of a DataFrame into nothing; return how many there were."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        seen = Observation()
        frame.observe(seen, F.count("prediction").alias("rows")).write.format("noop").mode("overwrite").save()
        return int(seen.get["rows"])


class TensorFlowOnSparkTraining(feed_side.TensorFlowOnSpark):
    """Its DataFeed in training: the nodes take batches of rows, and do nothing with them."""

    def __init__(self, spark: Any, folder: Path) -> None:
        super().__init__(spark, folder)
        self._tuples = Tuples(spark)

    def tuples(self, _: str, size: str) -> int:
        """Train on an RDD of tuples."""
        return self.fed(self._tuples.in_memory(size), tuple_rows(size))


class TensorFlowOnSparkInference:
    """Its DataFeed in inference: the nodes take batches of rows, and reply one number per row."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._frames = feed_side.Frames(spark, folder)
        rows = feed_side.BATCH

        def reply_rows(_: Any, ctx: Any) -> None:
            feed = ctx.get_data_feed(train_mode=False)
            while not feed.should_stop():
                batch = feed.next_batch(rows)
                if batch:
                    feed.batch_results([0.0] * len(batch))

        self._cluster = feed_side.tfos_cluster(spark, reply_rows, [])

    def infer(self, kind: str, size: str) -> int:
        """Infer on the rows of a DataFrame; the results are counted."""
        return int(self._cluster.inference(self._frames.in_memory(kind, size).rdd).count())

    def close(self) -> None:
        """End the nodes."""
        self._cluster.shutdown(grace_secs=0)


def adopt_nodes() -> None:
    """Be the parent of nodes that outlive their tasks: CPU seconds count only while they are below this process."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    adopt_nodes()
    feed_side.serve(
        {
            "emberflow": Emberflow,
            "tfos_train": TensorFlowOnSparkTraining,
            "tfos_infer": TensorFlowOnSparkInference,
        }
    )


if __name__ == "__main__":
    main()
