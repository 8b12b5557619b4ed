"""Faults on a real cluster: one typed error that names the cause, within seconds, and nothing left behind."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import emberflow as ef
from tests.spark.watching import (
    START,
    await_begun,
    await_file,
    begin,
    error_of,
    start_run,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.fault
@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_on_one_rank(spark_cluster: "SparkSession", tmp_path: Path, rank: int) -> None:
    def train(ctx: Any) -> None:
        if ctx.rank != rank:
            begin(tmp_path, ctx.rank)
            signal.pause()
        await_file(tmp_path / f"begun-{1 - rank}")
        print("about to fail")
        begin(tmp_path, rank)
        raise ValueError("nan loss")

    run = start_run(spark_cluster, train)
    error = error_of(run, await_begun(tmp_path, rank).at, f"exception on rank {rank}")
    assert isinstance(error, ef.NodeFailedError)
    assert (error.rank, error.role) == (rank, ("chief", "worker")[rank])
    assert error.host
    assert error.host in str(error)
    assert error.exception_type == "ValueError"
    assert error.remote_traceback.splitlines()[0] == "Traceback (most recent call last):"
    assert "in train" in error.remote_traceback.splitlines()[1]
    assert error.remote_traceback.rstrip().endswith("ValueError: nan loss")
    assert "src/emberflow" not in error.remote_traceback
    assert error.log_tail == "about to fail"


CAUSES = {
    "node": "killed by SIGKILL",
    "keeper": "had to be ended",
    "python_worker": "executor or its Python worker was killed",
    "executor": "executor or its Python worker was killed",
}


@pytest.mark.fault
@pytest.mark.parametrize("victim", list(CAUSES))
def test_a_process_that_is_killed(spark_cluster: "SparkSession", tmp_path: Path, victim: str) -> None:
    def train(ctx: Any) -> None:
        print("training")
        begin(tmp_path, ctx.rank)
        signal.pause()

    run = start_run(spark_cluster, train)
    await_begun(tmp_path, 0)
    target: psutil.Process = getattr(await_begun(tmp_path, 1), victim)
    killed = time.time()
    target.send_signal(signal.SIGKILL)
    error = error_of(run, killed, f"SIGKILL of the {victim}")
    assert isinstance(error, ef.NodeLostError)
    assert error.rank == 1
    assert error.host
    assert CAUSES[victim] in str(error)
    if victim in ("node", "keeper"):
        assert "Worker 1" in str(error)
        assert error.log_tail == "training"


@pytest.mark.smoke
@pytest.mark.fault
def test_sys_exit_with_a_code(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        begin(tmp_path, ctx.rank)
        if ctx.rank == 1:
            sys.exit(3)
        signal.pause()

    run = start_run(spark_cluster, train)
    error = error_of(run, await_begun(tmp_path, 1).at, "sys.exit(3)")
    assert isinstance(error, ef.NodeFailedError)
    assert error.rank == 1
    assert "sys.exit(3)" in str(error)


def test_sys_exit_without_a_code_is_a_normal_end(spark_cluster: "SparkSession") -> None:
    result = ef.run(lambda _: sys.exit(0), workers=2, spark=spark_cluster, verbose=False)
    assert result.value is None
    assert len(result.reports) == 2


class HangsWhenLoaded:
    """Hangs whichever node unpickles it second, before it has met the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return pass_once, (self.folder,)

    def __call__(self, ctx: Any) -> None: ...


def pass_once(folder: Path) -> HangsWhenLoaded:
    try:
        os.close(os.open(folder / "first", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        print("waiting for ever", flush=True)
        begin(folder, 9)
        (folder / "fifo").open().read()
    return HangsWhenLoaded(folder)


@pytest.mark.fault
def test_a_node_that_hangs_before_it_meets_the_others(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    started = time.time()
    run = start_run(spark_cluster, HangsWhenLoaded(tmp_path), start_timeout=4.0)
    error = error_of(run, started + 4.0, "a node that hangs before the rendezvous, after its start_timeout")
    assert "ready within 4 s" in str(error) or "started but did not get ready" in str(error)
    assert "worker 1" in str(error).lower() or "chief 0" in str(error).lower()


@pytest.mark.smoke
@pytest.mark.fault
def test_a_cancelled_job(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        begin(tmp_path, ctx.rank)
        signal.pause()

    run = start_run(spark_cluster, train)
    for rank in range(2):
        await_begun(tmp_path, rank)
    cancelled = time.time()
    spark_cluster.sparkContext.cancelAllJobs()
    error = error_of(run, cancelled, "cancel of the Spark job")
    assert isinstance(error, ef.RunCancelledError)
    assert "cancelled" in str(error)


def test_two_runs_at_once_take_turns(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    def train(ctx: Any) -> tuple[float, float]:
        started = time.time()
        begin(ctx.work_dir, ctx.rank)
        return started, time.time()

    runs = [start_run(spark_cluster, train) for _ in range(2)]
    results = [run.result(timeout=START) for run in runs]
    assert [len(result.reports) for result in results] == [2, 2]
    (_, first_end), (second_start, _) = sorted(result.value for result in results)
    assert second_start > first_end


@pytest.mark.full
def test_twenty_runs_in_a_row_leave_the_driver_as_it_was(spark_cluster: "SparkSession") -> None:
    def run_once() -> float:
        return ef.run(lambda ctx: ctx.rank, workers=2, spark=spark_cluster, verbose=False).seconds

    for _ in range(3):  # pools and caches of Spark's own fill up
        run_once()
    before = counts()
    seconds = sorted(run_once() for _ in range(20))
    after = counts()
    print(f"20 runs: median {seconds[10]:.2f} s, longest {seconds[-1]:.2f} s; {before} before, {after} after")
    assert after["threads"] <= before["threads"] + 1
    assert after["descriptors"] <= before["descriptors"] + 3


def counts() -> dict[str, int]:
    """Count what a driver may leak, once threads that are about to end have ended."""
    deadline = time.monotonic() + 5
    pause = threading.Event()
    while any(thread.name.startswith("emberflow") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, threading.enumerate()
        pause.wait(0.01)
    me = psutil.Process()
    return {"threads": threading.active_count(), "descriptors": me.num_fds()}
