"""All kinds of messages between driver, Spark task, keeper and node, with the one encode and the one decode.

A message is a frozen dataclass: in `node_messages`, `driver_messages`, `live_messages`, or in `outcome`, since how a
node ended also travels as a row. To add one: the class, its sender, its handler, and its row in ARCHITECTURE.md.
Events inside one process are in `_task/events.py` and `_driver/events.py`.
"""

import json
import re

from emberflow._protocol import driver_messages, live_messages, node_messages, outcome
from emberflow._protocol.codec import FIX, Message, read, shown, to_json
from emberflow.errors import PeerError


def kind_of(message: type[Message]) -> str:
    """Return the name of a message's kind.

    >>> kind_of(driver_messages.LogLines)
    'log_lines'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message.__name__).lower()


KINDS: dict[str, type[Message]] = {
    kind_of(each): each
    for module in (driver_messages, node_messages, live_messages, outcome)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Message) and each is not Message
}
_NAMES = {message: kind for kind, message in KINDS.items()}


def encode(message: Message) -> bytes:
    """Return a message as JSON: its fields, and its kind."""
    return to_json({"kind": _NAMES[type(message)], **vars(message)}).encode()


def decode(data: bytes) -> Message:
    """Return the message that `encode` wrote.

    Raises:
        PeerError: It is not JSON, its kind is unknown, or a field is wrong.
    """
    try:
        known = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"A message must be JSON. Received: {shown(data)}.", fix=FIX) from error
    kind = known.pop("kind", None) if type(known) is dict else None
    message = KINDS.get(kind) if isinstance(kind, str) else None
    if message is None:
        raise PeerError(f"A message must be of a known kind. Received: {shown(data)}.", fix=FIX)
    return read(message, known)
