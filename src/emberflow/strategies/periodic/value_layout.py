"""Where each variable's values are in the bytes that go to each parameter server.

All servers together hold the variables one after the other, in equal parts. So a variable may be split between
servers, and the model may be larger than the memory of one. Each piece begins at a multiple of 64 bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emberflow._plan.steps import balanced_ranges
from emberflow.errors import PeerError
from emberflow.strategies.periodic.combiners import RULES
from emberflow.strategies.transport.interface import Array

ALIGNMENT = 64  # a cache line, which numpy adds fastest
DTYPES = ("float16", "float32", "float64")


@dataclass(frozen=True, kw_only=True)
class VariableSpec:
    """One variable, flat: how many values, of which dtype, and the rule that combines them."""

    size: int
    dtype: str
    rule: str


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A run of one variable's values on one server.

    Attributes:
        variable: Its number; the server does not know it.
        start: First value of the run.
        stop: The value after the last.
        spec: The variable.
        offset: First byte in the server's values.
        push_offset: First byte in what a worker pushes, which is twice as long where the rule is a function.
    """

    variable: int
    start: int
    stop: int
    spec: VariableSpec
    offset: int
    push_offset: int

    @property
    def size(self) -> int:
        """How many values."""
        return self.stop - self.start

    @property
    def push_size(self) -> int:
        """How many values a worker pushes for them."""
        return RULES[self.spec.rule].push_factor * self.size

    def values(self, buffer: Array) -> Array:
        """Return this piece's values in the bytes of the server's values."""
        return _view(buffer, self.offset, self.size, self.spec.dtype)

    def push(self, buffer: Array) -> Array:
        """Return this piece's values in the bytes of a push."""
        return _view(buffer, self.push_offset, self.push_size, self.spec.dtype)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The pieces on one server, and how many bytes they take on the server and in a push."""

    pieces: tuple[Piece, ...]
    nbytes: int
    push_nbytes: int

    def to_json(self) -> list[list[Any]]:
        """Return what the server must know of it."""
        return [[piece.size, piece.spec.dtype, piece.spec.rule] for piece in self.pieces]

    @classmethod
    def from_json(cls, encoded: Sequence[Sequence[Any]]) -> "Layout":
        """Return the layout that a worker sent; refuse unknown dtypes and rules."""
        specs = [
            VariableSpec(size=int(size), dtype=str(dtype), rule=str(rule)) for size, dtype, rule in encoded
        ]
        for spec in specs:
            if spec.dtype not in DTYPES or spec.rule not in RULES or spec.size < 0:
                raise PeerError(
                    f"A variable must have a known dtype and rule. Received: {spec}.",
                    fix="Check that all nodes run the same version of emberflow.",
                )
        return lay_out(specs, [(place, 0, spec.size) for place, spec in enumerate(specs)])


def lay_out(specs: Sequence[VariableSpec], runs: Sequence[tuple[int, int, int]]) -> Layout:
    """Place runs ``(variable, start, stop)`` one after the other."""
    pieces = []
    offset = push_offset = 0
    for variable, start, stop in runs:
        spec = specs[variable]
        piece = Piece(
            variable=variable, start=start, stop=stop, spec=spec, offset=offset, push_offset=push_offset
        )
        pieces.append(piece)
        width = np.dtype(spec.dtype).itemsize
        offset += _padded(piece.size * width)
        push_offset += _padded(piece.push_size * width)
    return Layout(pieces=tuple(pieces), nbytes=offset, push_nbytes=push_offset)


def layouts_of(specs: Sequence[VariableSpec], servers: int) -> list[Layout]:
    """Cut all variables into equal parts, one for each server.

    >>> [layout.to_json() for layout in layouts_of([VariableSpec(size=6, dtype="float32", rule="mean")], 2)]
    [[[3, 'float32', 'mean']], [[3, 'float32', 'mean']]]
    """
    return [lay_out(specs, runs) for runs in balanced_ranges([spec.size for spec in specs], servers)]


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _view(buffer: Array, offset: int, size: int, dtype: str) -> Array:
    width = np.dtype(dtype).itemsize
    return buffer[offset : offset + size * width].view(dtype)
