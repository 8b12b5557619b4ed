"""The fast path for files whose records all have the same layout, as one program writes them.

The first record of a chunk defines the order of the features and their headers. One comparison per feature then
shows for all records at once that they match, and where their values are. At the first feature that does not match,
the walk in lockstep (`walk`) continues.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from emberflow.errors import DataError
from emberflow.tfrecord.codec.feature_values import Kind
from emberflow.tfrecord.codec.headers import Header
from emberflow.tfrecord.codec.protobuf import Array, read_lengths, windows, words
from emberflow.tfrecord.codec.record_parser import entries, read_varint

_KINDS: dict[int, Kind] = {0x0A: "bytes", 0x12: "float", 0x1A: "int"}


@dataclass(frozen=True, kw_only=True)
class Payload:
    """Where the values of one feature are, in every record: packed numbers, or the bytes of one value."""

    kind: Kind
    start: Array
    length: Array


def match_layout(
    data: Array, starts: Array, ends: Array, names: Sequence[bytes]
) -> tuple[dict[int, Payload], Array]:
    """Find the features that all records have at the same position of their order.

    Returns:
        The payloads by the number of the name, and where in each record the next entry starts.
    """
    found: dict[int, Payload] = {}
    at = starts
    if len(starts) < 2:
        return found, at
    view = words(data)
    numbers = {name: place for place, name in enumerate(names)}
    for header, first in _sketch(data[starts[0] : ends[0]].tobytes()):
        bodies = _bodies(data, view, at, header, first)
        if bodies is None:
            break
        size = len(header.chain(first))
        end = at + size + bodies
        number = numbers.get(header.key or b"", -1)
        if (end > ends).any() or number in found:
            break
        if number >= 0:
            found[number] = Payload(kind=_KINDS[header.tag[0]], start=at + size, length=bodies)
        at = end
    return found, at


def _bodies(data: Array, view: Array, at: Array, header: Header, first: int) -> Array | None:
    """Return the size of each record's values if the header before them is the expected one, otherwise None."""
    chain = header.chain(first)
    width = len(chain)
    if int(at.max()) + width > len(data):
        return None
    length, size = read_lengths(view, at + 1)
    bodies = 1 + size + length - width
    seen = windows(data, width)[at].view(np.uint8).reshape(-1, width)
    if (bodies == first).all():
        return bodies if (seen == np.frombuffer(chain, np.uint8)).all() else None
    table = header.table(width)
    if table is None or bodies.min() < 0 or bodies.max() >= len(table):
        return None
    return bodies if (seen == table[bodies].view(np.uint8).reshape(-1, width)).all() else None


def _sketch(message: bytes) -> Iterator[tuple[Header, int]]:
    """Yield header and size of values for the entries of one record, up to the first irregular one."""
    at = 0
    try:
        for name, feature in entries(message):
            header, body = _shape(name, feature)
            chain = header.chain(body)
            if message[at : at + len(chain)] != chain:
                return
            yield header, body
            at += len(chain) + body
    except (DataError, IndexError, KeyError):  # the other parsers decide what it is
        return


def _shape(key: bytes, feature: bytes) -> tuple[Header, int]:
    tag = feature[:1]
    is_bytes = _KINDS[tag[0]] == "bytes"
    _, at = read_varint(feature, 1)
    body = read_varint(feature, at + 1)[0] if at < len(feature) else 0
    return Header(key, tag, True, keeps_empty=is_bytes), body
