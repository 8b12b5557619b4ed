"""The bytes before the values of a feature: map entry, key, feature, list, packed list.

Each of these messages begins with its own length, so the header of a row follows from one number, the size of
its values. Small sizes are looked up in a table made once per column, large ones are computed for all rows.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from emberflow.tfrecord.codec.protobuf import (
    Array,
    rows_as_windows,
    varint_bytes,
    varint_matrix,
    varint_sizes,
    windows,
)

_TABLE = 128  # sizes below this have a length of one byte


@dataclass(frozen=True)
class Header:
    """The header of one column.

    Attributes:
        key: The feature's name, or None for an inner feature of an array of arrays.
        tag: The tag of the list of values, or nothing where the values are features.
        is_packed: Whether the values are one field: packed numbers, or one value of bytes.
        keeps_empty: Whether that field is written when it is empty: one empty value differs from no value.
    """

    key: bytes | None
    tag: bytes
    is_packed: bool
    keeps_empty: bool = False

    def sizes(self, body: Array) -> Array:
        """Return the size of each row's header."""
        if not len(body) or body.max() < _TABLE:
            return _table(self)[0][body]
        named = len(self._named()) if self.key is not None else 0
        sizes = sum((varint_sizes(number) for number in self._lengths(body)), np.zeros(len(body), np.int64))
        sizes += 1 + named + len(self.tag) + int(self.is_packed)
        small = body < _TABLE
        sizes[small] = _table(self)[0][body[small]]
        return sizes

    def write(self, out: Array, at: Array, body: Array) -> None:
        """Write each row's header at its place."""
        first = int(body[0])
        if (body == first).all():
            chain = self.chain(first)
            windows(out, len(chain))[at] = np.frombuffer(chain, f"V{len(chain)}")
        elif body.max() < _TABLE:
            self._write_known(out, at, body)
        else:
            self._write_large(out, at, body)

    def chain(self, body: int) -> bytes:
        """Return the header before values of the given size."""
        packed = b"\x0a" + varint_bytes(body) if self.is_packed and (body or self.keeps_empty) else b""
        listed = self.tag + varint_bytes(len(packed) + body) if self.tag else b""
        inside = len(listed) + len(packed) + body
        named = self._named() + varint_bytes(inside) if self.key is not None else b""
        return b"\x0a" + varint_bytes(len(named) + inside) + named + listed + packed

    def table(self, width: int) -> Array | None:
        """Return the headers of the given size by the size of the values; None where there are none."""
        return _table(self)[1].get(width)

    def _named(self) -> bytes:
        key = self.key or b""
        return b"\x0a" + varint_bytes(len(key)) + key + b"\x12"

    def _lengths(self, body: Array) -> list[Array]:
        """Return the lengths in the order in which they are written."""
        numbers = [body.astype(np.uint64)] if self.is_packed else []
        inside = body + (1 + varint_sizes(numbers[0]) if self.is_packed else 0)
        if self.tag:
            numbers.append(inside.astype(np.uint64))
            inside = inside + 1 + varint_sizes(numbers[-1])
        numbers.append(inside.astype(np.uint64))
        if self.key is not None:
            inside = inside + len(self._named()) + varint_sizes(numbers[-1])
            numbers.append(inside.astype(np.uint64))
        return numbers[::-1]

    def _write_known(self, out: Array, at: Array, body: Array) -> None:
        sizes, tables = _table(self)
        for width, table in tables.items():
            some = np.flatnonzero(sizes[body] == width) if len(tables) > 1 else slice(None)
            windows(out, width)[at[some]] = table[body[some]]

    def _write_large(self, out: Array, at: Array, body: Array) -> None:
        small = body < _TABLE  # an empty packed list has no length field: the table covers it
        if small.any():
            self._write_known(out, at[small], body[small])
            at, body = at[~small], body[~small]
        numbers = self._lengths(body)
        parts = [b"\x0a"] + ([self._named()] if self.key is not None else [])
        parts += ([self.tag] if self.tag else []) + ([b"\x0a"] if self.is_packed else [])
        for part, number in zip(parts, numbers, strict=True):
            sizes = varint_sizes(number)
            for width in np.unique(sizes).tolist():
                some = sizes == width
                head = np.empty((int(some.sum()), len(part) + width), np.uint8)
                head[:, : len(part)] = np.frombuffer(part, np.uint8)
                head[:, len(part) :] = varint_matrix(number[some], sizes[some], width)
                windows(out, head.shape[1])[at[some]] = rows_as_windows(head)
            at = at + len(part) + sizes


@lru_cache(maxsize=4096)
def _table(header: Header) -> tuple[Array, dict[int, Array]]:
    """Return the header's size for each small body, and for each size the headers by body."""
    chains = [header.chain(body) for body in range(_TABLE)]
    sizes = np.array([len(chain) for chain in chains], np.int64)
    tables = {}
    for width in np.unique(sizes).tolist():
        rows = b"".join(chain if len(chain) == width else bytes(width) for chain in chains)
        tables[width] = np.frombuffer(rows, f"V{width}")
    return sizes, tables
