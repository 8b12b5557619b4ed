"""One event is one line of JSON: its kind, its time, its fields."""

import json
import re
from collections.abc import Iterable, Iterator

from emberflow._protocol.codec import read, to_json
from emberflow._record import events
from emberflow._record.events import Event
from emberflow.errors import PeerError

KINDS: dict[str, type[Event]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): kind
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def to_line(event: Event) -> str:
    """Return an event as one line.

    >>> to_line(events.NodeReady(t=1.23456, rank=3))
    '{"event":"node_ready","t":1.235,"rank":3}'
    """
    fields = {**vars(event), "t": round(event.t, 3)}
    return to_json({"event": _NAMES[type(event)], **fields})


def read_lines(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of a record; a line that was cut, or is of a kind that is not known here, is skipped."""
    for line in lines:
        event = _read_line(line)
        if event is not None:
            yield event


def _read_line(line: str) -> Event | None:
    try:
        known = json.loads(line)
        kind = KINDS.get(known.pop("event", ""))
        return None if kind is None else read(kind, known)
    except (ValueError, AttributeError, TypeError, RecursionError, PeerError):
        return None
