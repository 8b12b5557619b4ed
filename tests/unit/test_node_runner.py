"""How long a task waits for a node that shall leave."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from emberflow._node.node_spec import NodeSpec
from emberflow._plan.roles import assign_roles
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import LogLines
from emberflow._protocol.outcome import Ending
from emberflow._task.node_runner import NodeRunner
from tests.unit.nodes import WITHIN, plan_of, real_node


def wait_for_ever(ctx: Any) -> None:
    import threading

    threading.Event().wait()


def test_an_evaluator_gets_evaluator_timeout_for_its_last_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = assign_roles(2, evaluator=True)
    plan = dataclasses.replace(plan_of(2, evaluator_timeout=0.3), nodes=nodes)
    spec = NodeSpec(
        me=nodes[2], plan=plan, host="h", folder=str(tmp_path / "node"), devices=(), key=b"", fn=b""
    )
    sent: list[Message] = []
    with real_node(wait_for_ever, tmp_path) as node:
        node.meet()
        monkeypatch.setattr(node.monitor, "send_to_driver", sent.append)
        started = time.monotonic()
        outcome = NodeRunner(spec)._leave(node.monitor)
        assert 0.3 <= time.monotonic() - started < WITHIN / 2
    assert (outcome.rank, outcome.ending) == (2, Ending.RETURNED)
    assert sent == [
        LogLines("not done 0.3 s (evaluator_timeout) after the others: ended without a last evaluation")
    ]
