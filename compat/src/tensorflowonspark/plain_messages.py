"""Plain values as JSON, bytes and tuples included: what a stranger sends can be wrong, but runs no code."""

import json
from typing import Any

BYTES, TUPLE = "__bytes__", "__tuple__"


def encoded(value: Any) -> bytes:
    """Return a value as JSON.

    >>> decoded(encoded({"addr": ("h", 1), "key": b"k"}))
    {'addr': ('h', 1), 'key': b'k'}
    """
    return json.dumps(_plain(value)).encode()


def decoded(data: bytes) -> Any:
    """Return the value of some JSON."""
    return json.loads(data, object_hook=_restored)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {BYTES: value.hex()}
    if isinstance(value, tuple):
        return {TUPLE: [_plain(each) for each in value]}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value


def _restored(found: dict[str, Any]) -> Any:
    if set(found) == {BYTES}:
        return bytes.fromhex(found[BYTES])
    return tuple(found[TUPLE]) if set(found) == {TUPLE} else found
