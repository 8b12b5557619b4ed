"""A lost node costs a restart and not the run: all nodes start again, from the last checkpoint."""

import functools
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow.errors import NodeFailedError, NodeLostError
from tests.spark.watching import START, await_begun, await_file, begin, error_of, start_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")

SAVED = 5
LAST = 8


def training(notes: Path) -> "Callable[[Any], Any]":
    """Return a program that saves step 5 and then waits to be killed; a later attempt goes on to step 8."""

    def train(ctx: Any) -> dict[str, Any]:
        found = ctx.latest_checkpoint()
        state = 0 if found is None else int((found.path / "state").read_text())
        resumed = (ctx.attempt, found.step if found else 0, state)
        if ctx.role in ("ps", "evaluator"):
            begin(notes, ctx.rank)
            ctx.wait_until_over()
            return {"resumed": resumed}
        last = LAST if ctx.attempt else SAVED
        for step in range(resumed[1], last):
            state += step
            ctx.report(step=step, state=state)
        ctx.save_checkpoint(lambda folder: (folder / "state").write_text(str(state)), step=last)
        if not ctx.attempt:
            begin(notes, ctx.rank)
            signal.pause()
        return {"resumed": resumed, "state": state}

    return train


@pytest.mark.fault
@pytest.mark.parametrize(
    "victim",
    [
        "node",
        pytest.param("python_worker", marks=pytest.mark.full),
        pytest.param("executor", marks=pytest.mark.smoke),
    ],
)
def test_a_killed_worker_costs_a_restart(spark_cluster: "SparkSession", tmp_path: Path, victim: str) -> None:
    run = start_run(
        spark_cluster, training(tmp_path), max_restarts=1, checkpoint_dir=str(tmp_path / "shared")
    )
    await_begun(tmp_path, 0)
    getattr(await_begun(tmp_path, 1), victim).send_signal(signal.SIGKILL)
    killed = time.time()
    result = run.result(timeout=START)
    print(f"SIGKILL of the {victim}: done again after {time.time() - killed:.1f} s")
    assert result.attempts == 2
    assert result.value == {"resumed": (1, SAVED, 10), "state": sum(range(LAST))}
    assert [report.value["resumed"] for report in result.reports] == [(1, SAVED, 10)] * 2
    told = [(metric.attempt, metric.step) for metric in result.metrics if metric.rank == 0]
    assert told == [(0, step) for step in range(SAVED)] + [(1, step) for step in range(SAVED, LAST)]


@pytest.mark.fault
def test_a_killed_ps_beside_gpu_workers_costs_a_restart(spark_gpus: "SparkSession", tmp_path: Path) -> None:
    run = start_run(
        spark_gpus,
        training(tmp_path),
        workers=4,
        ps=1,
        gpus=1,
        transport="ring",
        max_restarts=1,
        checkpoint_dir=str(tmp_path / "shared"),
    )
    for rank in range(4):
        await_begun(tmp_path, rank)
    await_begun(tmp_path, 4).node.send_signal(signal.SIGKILL)
    result = run.result(timeout=START)
    assert result.attempts == 2
    assert [report.value["resumed"] for report in result.reports] == [(1, SAVED, 10)] * 5
    assert sorted(device for report in result.reports for device in report.devices) == ["0", "1", "2", "3"]


@pytest.mark.full
@pytest.mark.fault
def test_a_killed_executor_under_all_roles_costs_a_restart(
    spark_gpus: "SparkSession", tmp_path: Path
) -> None:
    run = start_run(
        spark_gpus,
        training(tmp_path),
        workers=4,
        ps=1,
        evaluator=True,
        gpus=1,
        transport="ring",
        max_restarts=1,
        checkpoint_dir=str(tmp_path / "shared"),
    )
    nodes = [await_begun(tmp_path, rank) for rank in range(6)]
    nodes[0].executor.send_signal(signal.SIGKILL)
    result = run.result(timeout=START)
    assert result.attempts == 2
    assert result.value["state"] == sum(range(LAST))


@pytest.mark.fault
@pytest.mark.parametrize("role", [pytest.param("worker", marks=pytest.mark.full), "ps"])
def test_without_restarts_a_killed_node_is_an_error_in_seconds(
    spark_gpus: "SparkSession", tmp_path: Path, role: str
) -> None:
    shared = str(tmp_path / "shared")
    run = start_run(
        spark_gpus, training(tmp_path), workers=2, ps=1, gpus=1, checkpoint_dir=shared, transport="ring"
    )
    begun = [await_begun(tmp_path, rank) for rank in range(3)]
    rank = {"worker": 1, "ps": 2}[role]
    killed = time.time()
    begun[rank].node.send_signal(signal.SIGKILL)
    error = error_of(run, killed, f"SIGKILL of the {role}")
    assert isinstance(error, NodeLostError)
    assert (error.role, error.rank) == (role, rank)
    assert "SIGKILL" in str(error)


def fail_once(ctx: Any) -> int:
    if not ctx.attempt:
        raise ValueError("nan loss")
    return int(ctx.attempt)


def test_your_own_exception_is_no_reason_to_start_again(spark_cluster: "SparkSession") -> None:
    with pytest.raises(NodeFailedError, match="nan loss"):
        ef.run(fail_once, workers=2, max_restarts=3, spark=spark_cluster, verbose=False)


def test_your_own_exception_is_a_reason_if_you_say_so(spark_cluster: "SparkSession") -> None:
    result = ef.run(
        fail_once, workers=2, max_restarts=3, restart_on_error=True, spark=spark_cluster, verbose=False
    )
    assert (result.value, result.attempts) == (1, 2)


@pytest.mark.fault
def test_restarts_are_counted(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    def die(ctx: Any) -> None:
        if ctx.rank == 1:
            (tmp_path / f"attempt-{ctx.attempt}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        ctx.wait_until_over()

    with pytest.raises(NodeLostError, match="SIGKILL"):
        ef.run(die, workers=2, max_restarts=2, spark=spark_cluster, verbose=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt-0", "attempt-1", "attempt-2"]


def count_on(ctx: Any) -> tuple[int, int]:
    found = ctx.latest_checkpoint()
    step = found.step if found else 0
    url = ctx.save_checkpoint(lambda folder: (folder / "state").write_text("x"), step=step + 1)
    assert (url is not None) == ctx.is_chief
    return step, ctx.attempt


def test_a_second_run_goes_on_where_the_first_ended(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    for step in range(3):
        result = ef.run(count_on, workers=2, checkpoint_dir=shared, spark=spark_cluster, verbose=False)
        assert [report.value for report in result.reports] == [(step, 0), (step, 0)]
    assert len(list((tmp_path / "shared").iterdir())) == 3


@pytest.mark.full
def test_a_run_that_saves_nothing_leaves_nothing(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    ef.run(lambda _: None, workers=2, checkpoint_dir=str(shared), spark=spark_cluster, verbose=False)
    assert list(shared.iterdir()) == []


def test_checkpoints_without_a_folder_are_refused(spark_cluster: "SparkSession") -> None:
    with pytest.raises(NodeFailedError, match=r"checkpoint_dir=None(.|\n)*hdfs"):
        ef.run(count_on, workers=2, spark=spark_cluster, verbose=False)


@pytest.mark.fault
def test_an_attempt_that_is_ended_does_no_harm_though_it_saves_to_the_last(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    """The chief of the first attempt saves without end; it is killed in the middle of some save."""

    def train(ctx: Any) -> int | None:
        found = ctx.latest_checkpoint()
        if ctx.attempt:
            return None if found is None else int((found.path / "state").read_text()) - found.step
        if not ctx.is_chief:
            await_file(tmp_path / "saves")
            os.kill(os.getpid(), signal.SIGKILL)
        step = 0
        while True:
            step += 1
            ctx.save_checkpoint(lambda folder: (folder / "state").write_text(str(step)), step=step)  # noqa: B023
            if step == 5:
                (tmp_path / "saves").touch()

    shared = str(tmp_path / "shared")
    result = ef.run(
        train, workers=2, max_restarts=1, checkpoint_dir=shared, spark=spark_cluster, verbose=False
    )
    assert [report.value for report in result.reports] == [0, 0]


def test_the_programs_of_the_documentation_run(spark_gpus: "SparkSession", tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "roles-gpus-restarts.md").read_text()
    names: dict[str, Any] = {}
    for program in re.findall(r"^def \w+\(ctx\):\n(?: .*\n|\n)+", page, re.MULTILINE):
        exec(program, names)  # the last `train` is the one with checkpoints
    fn = names["train_or_evaluate"]

    shared = str(tmp_path / "shared")
    run = functools.partial(ef.run, workers=2, evaluator=True, spark=spark_gpus, verbose=False)
    assert run(fn, checkpoint_dir=shared).value == sum(range(100))
    assert run(fn, checkpoint_dir=shared).value == sum(range(100))  # it has nothing left to do
    steps = sorted(path.name for path in (tmp_path / "shared").glob("*/step-*"))
    assert steps == ["step-000000080", "step-000000090", "step-000000100"]
