"""One real node process: what it tells of your function's end, whatever that end is."""

import math
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from emberflow._node.main import TEXT_LIMIT
from emberflow._protocol.node_messages import NodeExited, Raised, Returned
from emberflow._protocol.sealed_file import LocalFile
from emberflow._task.events import NodeStopped
from tests.unit.nodes import WITHIN, real_node


def ask_for_a_checkpoint(ctx: Any) -> Any:
    return ctx.latest_checkpoint()


def test_an_error_of_ours_ends_at_your_own_call_and_brings_its_fix(tmp_path: Path) -> None:
    with real_node(ask_for_a_checkpoint, tmp_path) as node:
        said = node.run()
        assert (type(said), said.exception_type) == (Raised, "ConfigError")
        lines = said.problem.splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert "    return ctx.latest_checkpoint()" in lines
        assert lines[-1].startswith("emberflow.errors.ConfigError: ")
        assert f"emberflow{os.sep}_node" not in said.problem
        assert "checkpoint_dir=" in said.fix


def identity(ctx: Any) -> Any:
    return (
        ctx.rank,
        ctx.role,
        ctx.index,
        ctx.workers,
        ctx.is_chief,
        ctx.attempt,
        ctx.cluster_spec,
        ctx.devices,
    )


def test_a_function_sees_its_place_in_the_cluster(tmp_path: Path) -> None:
    with real_node(identity, tmp_path, rank=1) as node:
        said = node.run()
        assert isinstance(said, Returned)
        spec = {"chief": ["a:1"], "worker": ["b:2"]}
        assert node.value() == (1, "worker", 0, 2, False, 0, spec, ())
        assert node.leave() == 0


def test_where_files_are_encrypted_the_value_is_and_no_file_holds_the_spec(tmp_path: Path) -> None:
    text = "a value that nobody else may read"

    def files(ctx: Any) -> list[Any]:
        folder = ctx.work_dir.parent
        return [text, [str(path) for path in folder.rglob("*") if path.is_file()]]

    with real_node(files, tmp_path, encrypts_files=True) as node:
        returned = node.run()
        kept = LocalFile(
            path=str(node.folder / "value.pickle"),
            size=returned.value_bytes,
            key=bytes.fromhex(returned.value_key),
        )
        assert text.encode() not in (node.folder / "value.pickle").read_bytes()
        with kept.open() as file:
            assert cloudpickle.load(file) == [text, []]
        assert returned.value_key not in repr(returned)
        assert node.leave() == 0


def test_a_function_that_came_as_a_file_is_called_and_its_file_goes(tmp_path: Path) -> None:
    with real_node(lambda _: 7, tmp_path, from_file=True) as node:
        node.run()
        assert node.value() == 7
        assert not (node.folder / "function.pickle").exists()
        assert node.leave() == 0


def environment(ctx: Any) -> Any:
    import json

    ctx.work_dir.joinpath("mine").write_text("x")
    return (
        json.loads(os.environ["TF_CONFIG"]) == ctx.tf_config,
        str(ctx.work_dir),
        "tensorflow" in sys.modules,
    )


def test_tf_config_is_set_the_work_dir_is_there_and_tensorflow_is_not_imported_for_you(
    tmp_path: Path,
) -> None:
    with real_node(environment, tmp_path) as node:
        node.run()
        is_same, work_dir, has_tensorflow = node.value()
        assert (is_same, has_tensorflow) == (True, False)
        assert work_dir.startswith(str(tmp_path))
        assert node.leave() == 0
        assert not Path(work_dir).exists()


def fail(ctx: Any) -> None:
    print("about to fail")
    fail_below()


def fail_below() -> None:
    raise ValueError("nan loss")


def test_an_exception_comes_with_the_users_frames_only(tmp_path: Path) -> None:
    with real_node(fail, tmp_path) as node:
        said = node.run()
        assert (type(said), said.exception_type) == (Raised, "ValueError")
        lines = said.problem.splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert "in fail" in lines[1]
        assert lines[-1] == "ValueError: nan loss"
        assert "_node/main.py" not in said.problem
        node.monitor.drain_log(0.1)
        assert node.monitor.log_tail() == "about to fail"


def long_words(ctx: Any) -> None:
    raise ValueError("x" * 100_000_000 + " the end")


def test_a_message_of_100_mb_is_cut_in_the_middle(tmp_path: Path) -> None:
    with real_node(long_words, tmp_path) as node:
        said = node.run()
        assert len(said.problem) < TEXT_LIMIT + 100
        assert said.problem.rstrip().endswith("the end")
        assert "in long_words" in said.problem


@pytest.mark.parametrize("code", [0, None])
def test_sys_exit_without_a_code_is_a_normal_end(code: int | None, tmp_path: Path) -> None:
    with real_node(lambda _: sys.exit(code), tmp_path) as node:
        assert isinstance(node.run(), Returned)
        assert node.value() is None
        assert node.leave() == 0


def test_sys_exit_with_a_code_is_an_error_that_names_it(tmp_path: Path) -> None:
    with real_node(lambda _: sys.exit(3), tmp_path) as node:
        said = node.run()
        assert (type(said), said.exception_type) == (Raised, "SystemExit")
        assert "sys.exit(3)" in said.problem


@pytest.mark.parametrize(("end", "status"), [("kill", -signal.SIGKILL), ("exit", 0)])
def test_a_process_that_ends_without_a_word_is_told_by_its_keeper(
    end: str, status: int, tmp_path: Path
) -> None:
    def vanish(ctx: Any) -> None:
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)

    with real_node(vanish, tmp_path) as node:
        assert node.run() == NodeExited(status)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_value_that_cannot_be_pickled_matters_only_on_the_chief(rank: int, tmp_path: Path) -> None:
    with real_node(lambda _: threading.Lock(), tmp_path, rank=rank) as node:
        said = node.run()
        if rank == 0:
            assert isinstance(said, Raised)
            assert "returned a _thread.lock, which cannot be pickled" in said.problem
            assert "Return plain values" in said.fix
        else:
            assert isinstance(said, Returned)
            assert node.value() is None


def forks(ctx: Any) -> str:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return "parent"
    return "child" * 1000


def test_a_forked_child_that_comes_back_has_no_say(tmp_path: Path) -> None:
    with real_node(forks, tmp_path) as node:
        assert isinstance(node.run(), Returned)
        assert node.value() == "parent"
        assert node.leave() == 0


def fails_in_fork(ctx: Any) -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    raise ValueError("in the child")


def test_an_exception_in_a_forked_child_is_in_the_log(tmp_path: Path) -> None:
    with real_node(fails_in_fork, tmp_path) as node:
        assert isinstance(node.run(), Returned)
        assert node.value() == 1
        node.leave()
        assert "ValueError: in the child" in node.monitor.log_tail()


def reports(ctx: Any) -> None:
    ctx.report(step=3, loss=0.25)
    ctx.report(accuracy=1)
    ctx.report(step=4, loss=float("nan"))
    try:
        ctx.report(loss="low")
    except ValueError as error:
        print(error)


def test_reports_are_numbers_with_a_step(tmp_path: Path) -> None:
    with real_node(reports, tmp_path) as node:
        node.run()
        node.leave()
        first, second, third = node.monitor.metrics.items()
        assert (first.step, first.values) == (3, {"loss": 0.25})
        assert (second.step, second.values) == (None, {"accuracy": 1.0})
        assert math.isnan(third.values["loss"])
        assert 0 <= first.seconds <= third.seconds
        assert "Received: {'loss': 'low'}" in node.monitor.log_tail()


def test_a_module_that_executors_lack_is_named_with_the_remedy(tmp_path: Path) -> None:
    def needs_it(ctx: Any) -> None:
        import absent_module.part  # noqa: F401

    with real_node(needs_it, tmp_path) as node:
        said = node.run()
        assert said.exception_type == "ModuleNotFoundError"
        assert "'absent_module'" in said.fix


class NeedsModule:
    """Unpickles only where a module is that exists nowhere."""

    def __reduce__(self) -> Any:
        return __import__, ("absent_module",)

    def __call__(self, ctx: Any) -> None: ...


def test_a_function_that_cannot_be_unpickled_is_told_before_the_rendezvous(tmp_path: Path) -> None:
    with real_node(NeedsModule(), tmp_path) as node:
        said = node.next()
        assert isinstance(said, Raised)
        assert (type(said), said.exception_type) == (Raised, "ModuleNotFoundError")


def shouts(ctx: Any) -> None:
    line = "x" * 79 + "\n"
    for _ in range(1000):
        sys.stdout.write(line * 1250)  # 100 MB in all
    sys.stdout.write("long line" * 10_000)
    print("\nlast")


def test_100_mb_of_output_pass_and_only_the_tail_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with real_node(shouts, tmp_path) as node:
        with capfd.disabled():
            devnull = os.open(os.devnull, os.O_WRONLY)
            saved = os.dup(2)
            os.dup2(devnull, 2)  # stands for the executor's log
            try:
                assert isinstance(node.run(), Returned)
                assert node.leave() == 0
            finally:
                os.dup2(saved, 2)
                os.close(saved)
                os.close(devnull)
        tail = node.monitor.log_tail()
        assert tail.splitlines()[-1] == "last"
        assert len(tail) < 40 * 8192 + 1000


def test_a_node_whose_task_is_gone_ends(tmp_path: Path) -> None:
    with real_node(lambda _: signal.pause(), tmp_path) as node:
        node.meet()
        node.child.control.shutdown(2)
        assert isinstance(node.next(), NodeExited)


@pytest.mark.fault
def test_temporary_files_of_a_killed_node_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def litter(ctx: Any) -> None:
        Path(tempfile.mkstemp(dir=tempfile.gettempdir())[1]).write_text("generated")
        os.kill(os.getpid(), signal.SIGKILL)

    with real_node(litter, tmp_path) as node:
        (folder,) = tmp_path.glob("emberflow-*")
        assert node.run() == NodeExited(-signal.SIGKILL)
    assert not folder.exists()


def test_a_node_that_was_stopped_is_missed_and_ended(tmp_path: Path) -> None:
    def stop(_: Any) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    with real_node(stop, tmp_path, heartbeat_limit=2.0) as node:
        node.meet()
        started = time.monotonic()
        assert node.next() == NodeStopped(2.0)
        assert 1.0 < time.monotonic() - started < WITHIN
        assert node.next() == NodeExited(None)  # the keeper has killed it
        assert node.monitor.is_over.is_set()


@pytest.mark.fault
def test_a_node_that_hangs_where_no_thread_can_run_is_missed(tmp_path: Path) -> None:
    def hang(_: Any) -> None:
        import ctypes

        ctypes.PyDLL(None).pause()  # keeps Python's lock

    with real_node(hang, tmp_path, heartbeat_limit=1.0) as node:
        node.meet()
        assert node.next() == NodeStopped(1.0)
        assert node.next() == NodeExited(None)


def test_a_node_that_works_or_waits_is_not_missed(tmp_path: Path) -> None:
    """Its function works for several limits: in Python, in the kernel, and in C that lets no other thread run."""

    def work(_: Any) -> str:
        end = time.monotonic() + 1.5
        rounds = 0
        while time.monotonic() < end:
            sum(range(10_000_000))
            rounds += 1
        threading.Event().wait(1.5)
        sum(range(rounds * 20_000_000))  # for about 3 s
        return "done"

    with real_node(work, tmp_path, heartbeat_limit=1.0) as node:
        assert isinstance(node.run(), Returned)
        assert node.value() == "done"
        assert node.leave() == 0


@pytest.mark.fault
def test_distribute_refuses_gpus_that_would_be_idle(tmp_path: Path) -> None:
    with real_node(lambda ctx: ctx.distribute(None), tmp_path, devices=("0", "1")) as node:
        said = node.run()
        assert (type(said), said.exception_type) == (Raised, "ConfigError")
        assert "Received: workers=2, gpus=2." in said.problem
        assert "Pass workers=4, gpus=1 to ef.run." in said.fix
