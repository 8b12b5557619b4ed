"""Packages that a node imports while its rows are on their way, and what happens to errors of these imports."""

import os
import select
import sys
from pathlib import Path
from typing import Any

import pytest

from emberflow._node.node_spec import NodeSpec
from emberflow._node.preload import preloads
from emberflow._plan.roles import Role, assign_roles
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import Cluster
from emberflow._protocol.node_messages import Raised, Ready, Returned
from emberflow._protocol.node_state import NodeState
from emberflow._protocol.outcome import Ending, Outcome
from emberflow._task.node_runner import NodeRunner
from tests.unit.nodes import WITHIN, plan_of, real_node

PACKAGE = "package_that_takes_long"


def write(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / f"{PACKAGE}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)


def has_it(ctx: Any) -> Any:
    module = sys.modules.get("package_that_takes_long")
    return module and (module.thread, "TF_CONFIG" in os.environ)


def test_a_package_is_imported_on_the_main_thread_while_the_rows_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "import threading\nthread = threading.current_thread().name\n"
    write(tmp_path, text + f"open({str(pipe)!r}, 'w').write('imported')\n", monkeypatch)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with real_node(has_it, tmp_path, preload=(PACKAGE,)) as node:
        assert isinstance(node.next(), Ready)
        assert select.select([end], [], [], WITHIN)[
            0
        ]  # before the node is told of the others and of its rows
        node.monitor.send_to_node(Cluster([{"tf": "a:1"}, {"tf": "b:2"}]))
        assert isinstance(node.next(), Returned)
        assert node.value() == ("MainThread", True)
        assert node.leave() == 0
    os.close(end)


def test_a_function_that_needs_it_not_never_has_it_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "thread = 'any'\n", monkeypatch)
    with real_node(has_it, tmp_path) as node:
        node.run()
        assert node.value() is None
        assert node.leave() == 0


def import_it(ctx: Any) -> None:
    import package_that_takes_long  # type: ignore[import-not-found] # noqa: F401


def test_an_error_of_the_import_is_raised_by_your_own_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "raise ImportError('libcudart.so.12: cannot open shared object file')\n", monkeypatch)
    with real_node(import_it, tmp_path, preload=(PACKAGE,)) as node:
        said = node.run()
        assert isinstance(said, Raised)
        assert "in import_it" in said.problem
        assert "ImportError: libcudart.so.12: cannot open shared object file" in said.problem
        assert "_node" not in said.problem


def test_a_function_that_does_not_use_it_is_not_bothered_by_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "raise ImportError('broken')\n", monkeypatch)
    with real_node(lambda ctx: ctx.rank, tmp_path, preload=(PACKAGE,)) as node:
        assert isinstance(node.run(), Returned)
        assert node.leave() == 0


class Unloadable:
    def __reduce__(self) -> Any:
        return (fail_to_load, ())

    def __call__(self, ctx: Any) -> None: ...


def fail_to_load() -> None:
    raise RuntimeError("a module of yours is missing")


def test_a_function_that_cannot_be_loaded_is_told_while_rows_are_missing(tmp_path: Path) -> None:
    sent: list[Message] = []
    with real_node(Unloadable(), tmp_path, preload=("json",)) as node:
        runner = NodeRunner(spec_of("worker", tmp_path))
        runner._state = NodeState.TAKING_ROWS
        node.monitor.send_to_driver = sent.append  # type: ignore[method-assign]
        node.monitor.on_exit = lambda event: runner._report_early_exit(event, node.monitor)
        assert isinstance(node.next(), Ready)
        assert isinstance(node.next(), Raised)
    (outcome,) = [each for each in sent if isinstance(each, Outcome)]
    assert outcome.ending is Ending.RAISED
    assert "RuntimeError: a module of yours is missing" in outcome.problem


def spec_of(role: Role, folder: Path, strategy: Any = "data_parallel") -> NodeSpec:
    plan = plan_of(2, strategy=strategy, preload=("tensorflow",))
    (me, *_) = [node for node in assign_roles(2, ps=1, evaluator=True) if node.role == role]
    return NodeSpec(me=me, plan=plan, host="h", folder=str(folder), devices=(), key=b"", fn=b"")


@pytest.mark.parametrize(
    ("role", "strategy", "expected"),
    [
        ("worker", "data_parallel", True),
        ("evaluator", "data_parallel", True),
        ("ps", "parameter_server", True),
        ("ps", "periodic", False),
    ],
)
def test_all_nodes_preload_but_those_that_run_without_tensorflow(
    role: Role, strategy: str, expected: bool, tmp_path: Path
) -> None:
    assert preloads(spec_of(role, tmp_path, strategy)) is expected
