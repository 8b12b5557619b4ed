"""How a dataclass becomes JSON, and how JSON becomes that dataclass again, each field checked.

The types of the fields are the schema: `read` builds one reader per field from its annotation. Nothing else is
accepted, so that a peer of another version is refused with a `PeerError` and never with a `KeyError`.
"""

import enum
import functools
import json
import types
from collections.abc import Callable, Hashable
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from emberflow.errors import PeerError

Reader = Callable[[Any], Any]
Value = TypeVar("Value")

_ENCODER = json.JSONEncoder(
    separators=(",", ":"), default=vars
)  # made once: that costs more than a small message
FIX = "Check that driver and executors run the same version of emberflow."


@dataclass(frozen=True)
class Message:
    """Base of all messages. The name of the class gives the kind, the docstring begins with the direction."""


def to_json(value: object) -> str:
    """Return a dataclass, or plain values with dataclasses in them, as JSON."""
    return _ENCODER.encode(value)


def read(kind: type[Value], value: object) -> Value:
    """Return the dataclass whose fields `value` holds, as JSON has them.

    Raises:
        PeerError: A field is missing, unknown, or has another type.
    """
    if type(value) is not dict:
        raise PeerError(f"A {kind.__name__} must be a JSON object. Received: {shown(value)}.", fix=FIX)
    readers, required = _schema(cast("Hashable", kind))
    if not required <= value.keys() <= readers.keys():
        raise PeerError(
            f"A {kind.__name__} must have the fields {sorted(readers)}. Received: {sorted(map(str, value))}.",
            fix=FIX,
        )
    known = {}
    for name, found in value.items():
        try:
            known[name] = readers[name](found)
        except (TypeError, ValueError) as error:
            raise PeerError(
                f"The field {name} of a {kind.__name__} has the wrong type. Received: {name}={shown(found)}.",
                fix=FIX,
            ) from error
    return kind(**known)


def shown(value: object) -> str:
    """Return the beginning of a value, for errors.

    >>> shown("x" * 1000)[:4], len(shown("x" * 1000))
    ("'xxx", 80)
    """
    return repr(value)[:80]


@functools.cache
def _schema(kind: Any) -> tuple[dict[str, Reader], frozenset[str]]:
    """Return a reader per field, and the names of those that have no default."""
    hints = get_type_hints(kind)
    required = (each.name for each in fields(kind) if each.default is each.default_factory is MISSING)
    return {each.name: _reader(hints[each.name]) for each in fields(kind)}, frozenset(required)


def _reader(hint: Any) -> Reader:
    """Return the function that checks one value and gives it the type of its annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value: value
    if origin in (Union, types.UnionType):
        return _optional_reader([each for each in args if each is not types.NoneType])
    if origin is tuple:
        return _list_reader(_reader(args[0]), tuple)
    if origin is list:
        return _list_reader(_reader(args[0]), list)
    if origin is dict:
        return _dict_reader(_reader(args[1]))
    if issubclass(hint, enum.Enum):
        return cast("Reader", hint)
    if hasattr(hint, "__dataclass_fields__"):
        return functools.partial(read, hint)
    return _plain_reader(hint)


def _plain_reader(kind: type) -> Reader:
    accepted = (int, float) if kind is float else (kind,)

    def plain(value: Any) -> Any:
        if type(value) not in accepted:
            raise TypeError
        return value

    return plain


def _optional_reader(others: list[Any]) -> Reader:
    (kind,) = others  # a union of None and one type
    inner = _reader(kind)
    return lambda value: None if value is None else inner(value)


def _list_reader(inner: Reader, container: Callable[[Any], Any]) -> Reader:
    def sequence(value: Any) -> Any:
        if type(value) is not list:
            raise TypeError
        return container(map(inner, value))

    return sequence


def _dict_reader(inner: Reader) -> Reader:
    def mapping(value: Any) -> Any:
        if type(value) is not dict:
            raise TypeError
        return {name: inner(each) for name, each in value.items()}

    return mapping
