"""A node is killed in the second epoch; the next attempt goes on at the exact row, on real clusters."""

import os
import pickle
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from tests.spark.watching import await_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.usefixtures("nothing_left")

EPOCHS = 3
SAVED_AFTER = 20  # steps; an epoch of 51 rows a rank in batches of 4 has 13


def note(ctx: Any, steps: list[list[int]], notes: Path) -> None:
    """Save after `SAVED_AFTER` steps, on all ranks what was seen; two steps later rank 1 is killed."""
    if len(steps) == SAVED_AFTER:
        position = ctx.position()
        (notes / f"steps-{ctx.rank}").write_bytes(pickle.dumps(steps))
        ctx.save_checkpoint(
            lambda folder: (folder / "position").write_bytes(pickle.dumps(position)), step=SAVED_AFTER
        )
        (notes / f"saved-{ctx.rank}").touch()
    if len(steps) == SAVED_AFTER + 2:  # rows that nobody counts: they come again
        if ctx.rank == 0:
            signal.pause()
        await_file(notes / "saved-0")
        os.kill(os.getpid(), signal.SIGKILL)


def training(notes: Path, *, killed: bool) -> "Callable[[Any], Any]":
    """Return a program that notes the rows of each step, and saves its position after `SAVED_AFTER` of them."""

    def train(ctx: Any) -> tuple[int, list[list[int]]]:
        found = ctx.latest_checkpoint()
        position = pickle.loads((found.path / "position").read_bytes()) if found else None
        dataset = ctx.dataset(columns=["id"], batch_size=4, seed=3, start_at=position, strict_resume=True)
        steps: list[list[int]] = []
        for _ in range(position.epoch if position else 0, EPOCHS):
            for batch in dataset:
                steps.append(batch["id"].numpy().tolist())
                if killed and not ctx.attempt:
                    note(ctx, steps, notes)
        return ctx.attempt, steps

    return train


def check_resume(spark: "SparkSession", notes: Path) -> None:
    rows = spark.range(0, 102, 1, 5)

    def run(*, killed: bool) -> ef.Result:
        shared = notes / f"checkpoints-{killed}"
        train = training(notes, killed=killed)
        return ef.run(
            train,
            workers=2,
            data=rows,
            max_restarts=1,
            checkpoint_dir=str(shared),
            spark=spark,
            verbose=False,
        )

    whole, resumed = run(killed=False), run(killed=True)
    assert (whole.attempts, resumed.attempts) == (1, 2)
    for rank in range(2):
        before = pickle.loads((notes / f"steps-{rank}").read_bytes())
        attempt, after = resumed.reports[rank].value
        assert (attempt, len(before)) == (1, SAVED_AFTER)
        assert before + after == whole.reports[rank].value[1]
    last = [report.value[1][-13:] for report in resumed.reports]
    assert sorted(row for part in last for step in part for row in step) == list(range(102))


@pytest.mark.fault
def test_resume_at_the_exact_row_on_a_cluster(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    check_resume(spark_cluster, tmp_path)


@pytest.mark.full
def test_resume_at_the_exact_row_on_connect(spark_connect: "SparkSession", tmp_path: Path) -> None:
    check_resume(spark_connect, tmp_path)
