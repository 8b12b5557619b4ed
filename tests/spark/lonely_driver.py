"""A driver of its own, for the tests that end one: ``python -m tests.spark.lonely_driver FOLDER MASTER SCENE``."""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import emberflow as ef
from tests.sessions import SETTINGS
from tests.spark.watching import await_file, begin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(folder: Path, spark: "SparkSession") -> None:
    """Train for ever."""

    def train(ctx: Any) -> None:
        begin(folder, ctx.rank)
        signal.pause()

    try:
        ef.run(train, workers=2, spark=spark)
    except BaseException as error:  # noqa: BLE001 - the test reads what it was
        note(folder / "raised", error)
        spark.stop()


def feed(folder: Path, spark: "SparkSession") -> None:
    """Feed a live cluster; its function never ends its second round. Then stop it."""
    cluster = ef.cluster(hanging_in_round(folder, 1), workers=2, spark=spark, verbose=False)

    def use() -> None:
        with cluster:
            cluster.train(spark.range(10))
            cluster.train(spark.range(10))

    raised(folder / "raised", use)
    raised(folder / "stopped", cluster.stop)
    spark.stop()


def feed_and_stop_session(folder: Path, spark: "SparkSession") -> None:
    """Stop the session while nodes train, and the cluster when that is known."""
    from tests.spark.watching import start_call

    cluster = ef.cluster(hanging_in_round(folder, 1), workers=2, spark=spark, verbose=False, max_restarts=1)
    cluster.train(spark.range(10))
    call = start_call(lambda: raised(folder / "raised", lambda: cluster.train(spark.range(10))))
    for rank in range(2):
        await_file(folder / f"hangs-{rank}")
    (folder / "at").write_text(str(time.time()))
    spark.stop()
    call.result()
    raised(folder / "stopped", cluster.stop)


def feed_slowly(folder: Path, spark: "SparkSession") -> None:
    """Feed a live cluster with rows that come while the test does something to this process."""

    def learn(ctx: Any) -> list[int]:
        begin(folder, ctx.rank)
        return [each.rows() for each in ctx.rounds()]

    def wait(batches: Any) -> Any:
        (folder / "feeds").touch()
        await_file(folder / "go-on")
        yield from batches

    with ef.cluster(learn, workers=2, spark=spark, verbose=False) as cluster:
        cluster.train(spark.range(10))
        cluster.train(spark.range(100).mapInArrow(wait, "id long"))
        cluster.train(spark.range(1000))
    seen = [report.value for report in cluster.stop().reports]
    (folder / "seen").write_text(json.dumps([sum(rows) for rows in zip(*seen, strict=True)]))
    spark.stop()


class HangsWhenLoaded:
    """Keeps every node from being up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return hang, (self.folder,)

    def __call__(self, ctx: Any) -> None: ...


def hang(folder: Path) -> None:
    begin(folder, int(os.environ["EMBERFLOW_NODE"].split()[1]))
    signal.pause()


def start(folder: Path, spark: "SparkSession") -> None:
    """Start a live cluster whose nodes never get ready."""
    raised(
        folder / "raised",
        lambda: ef.cluster(HangsWhenLoaded(folder), workers=2, spark=spark, verbose=False),
    )
    spark.stop()


def hanging_in_round(folder: Path, number: int) -> Callable[[Any], list[int]]:
    """Return a function that counts the rows of its rounds, and never ends the one of this number."""

    def learn(ctx: Any) -> list[int]:
        print("training")
        begin(folder, ctx.rank)
        rows = []
        for each in ctx.rounds():
            rows.append(each.rows())
            if each.number == number:
                (folder / f"hangs-{ctx.rank}").touch()
                signal.pause()
        return rows

    return learn


def raised(path: Path, call: Callable[[], Any]) -> None:
    """Make a call, and write down what it raised."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - the test reads what it was
        note(path, error)


def note(path: Path, error: BaseException) -> None:
    traceback.print_exception(error)
    text = json.dumps({"kind": type(error).__name__, "text": str(error), "at": time.time()})
    path.with_suffix(".tmp").write_text(text)
    path.with_suffix(".tmp").rename(path)


def main(folder: Path, master: str, scene: str) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()
    globals()[scene](folder, spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
