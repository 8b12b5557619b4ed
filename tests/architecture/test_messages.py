"""The table of messages in ARCHITECTURE.md is that of the code; what is not a message is refused."""

import dataclasses
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from emberflow._driver import events as driver_events
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import Gather, Join, LogLines, ProbeAnswer
from emberflow._protocol.messages import KINDS, decode, encode
from emberflow._protocol.node_messages import KeeperOrder, Returned
from emberflow._protocol.node_state import NodeState
from emberflow._protocol.outcome import Ending, MetricReport, Outcome
from emberflow._task import events as task_events
from emberflow.errors import PeerError

PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"
ROW = re.compile(r"^\| `(\w+)` \| ([\w ]+) \| ([^|]+) \|", re.MULTILINE)
PROCESSES = {"attendant", "driver", "task", "keeper", "node"}


def direction_of(message: type) -> str:
    """Return what stands before the colon of a docstring: from where to where."""
    return (message.__doc__ or "").partition(":")[0]


def test_the_table_of_messages_is_that_of_the_code() -> None:
    section = PAGE.read_text().partition("\n## Messages\n")[2].partition("\n## ")[0]
    rows = ROW.findall(section)
    table = {kind: (direction, re.findall(r"`(\w+)`", fields)) for kind, direction, fields in rows}
    assert len(rows) == len(table)
    assert table == {
        kind: (direction_of(message).lower(), [each.name for each in dataclasses.fields(message)])
        for kind, message in KINDS.items()
    }


@pytest.mark.parametrize("message", KINDS.values(), ids=list(KINDS))
def test_every_message_says_its_direction_and_cannot_be_changed(message: type[Message]) -> None:
    ways = direction_of(message).lower().split(" to ")
    assert 2 <= len(ways) <= 3
    assert set(ways) <= PROCESSES
    assert message.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert get_type_hints(message).keys() == {each.name for each in dataclasses.fields(message)}


@pytest.mark.parametrize("module", [driver_events, task_events], ids=["driver", "task"])
def test_every_event_inside_a_process_says_its_direction(module: Any) -> None:
    events = [
        each
        for each in vars(module).values()
        if dataclasses.is_dataclass(each) and isinstance(each, type) and each.__module__ == module.__name__
    ]
    assert len(events) > 3
    for event in events:
        assert re.match(r"[A-Z][\w ]+ to (attempt|runner): ", event.__doc__ or ""), event


@pytest.mark.parametrize(
    "message",
    [
        LogLines('two\nlines "ä" \udc80'),
        Gather("steps-1", {"any": [1, None, 2.5]}, of=3),
        ProbeAnswer(NodeState.WAITING_FOR_ROWS),
        Returned(1, 2, {"train": {"rows": 3}}),
        MetricReport({"loss": 0.5, "epoch": 1}, None, 0.1),
        KeeperOrder(["a"], {"b": "c"}, ["d"], (1, 2), 3, (4,), (1,)),
        Outcome(
            rank=1,
            role="worker",
            index=0,
            host="h",
            ending=Ending.LOST,
            metrics=(MetricReport({"loss": 0.5}, 1, 0.1),),
            gpus=({"name": "x"},),
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_come_out_as_they_went_in(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff", "must be JSON"),
        (b"{", "must be JSON"),
        (b"[" * 100_000, "must be JSON"),
        (b"[]", "known kind"),
        (b"{}", "known kind"),
        (b'{"kind": []}', "known kind"),
        (b'{"kind": "gossip"}', "known kind"),
        (b'{"kind": "join", "rank": 1}', "must have the fields"),
        (b'{"kind": "join", "rank": 1, "host": "h", "more": 1}', "must have the fields"),
        (b'{"kind": "join", "rank": "1", "host": "h"}', "field rank of a Join"),
        (b'{"kind": "join", "rank": true, "host": "h"}', "field rank of a Join"),
        (b'{"kind": "join", "rank": null, "host": "h"}', "field rank of a Join"),
        (b'{"kind": "gather", "tag": "t", "value": 1, "of": "2"}', "field of of a Gather"),
        (b'{"kind": "probe_answer", "state": "asleep"}', "field state of a ProbeAnswer"),
        (b'{"kind": "ready", "endpoints": {"tf": 1}}', "field endpoints of a Ready"),
        (
            b'{"kind": "metric_report", "values": [], "step": 1, "seconds": 1}',
            "field values of a MetricReport",
        ),
    ],
)
def test_what_is_not_a_message_is_an_error_of_the_peer(data: bytes, problem: str) -> None:
    with pytest.raises(PeerError, match=problem) as caught:
        decode(data)
    assert "same version" in caught.value.fix
    assert len(str(caught.value)) < 500


def test_a_message_is_not_much_longer_than_its_content() -> None:
    assert len(encode(LogLines("x" * 1000))) < 1050
    assert len(encode(Join(999, "host-999"))) < 60
