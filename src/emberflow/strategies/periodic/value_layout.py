"""Where each variable's values stand in the bytes that go to each parameter server.

All servers together hold the variables one after the other, in equal parts; so a variable may be cut, and a server
of its own has room for more than fits one. Each piece begins at a multiple of 64 bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emberflow._plan.steps import balanced_ranges
from emberflow.errors import PeerError
from emberflow.strategies.periodic.combiners import RULES
from emberflow.strategies.transport.interface import Array

ALIGNMENT = 64
DTYPES = ("float16", "float32", "float64")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One variable, flat: how many values, of which dtype, and the rule that combines them."""

    size: int
    dtype: str
    rule: str


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A run of one variable's values on one server.

    Attributes:
        variable: Its number; what the server is told is without it.
        start: First value of the run.
        stop: The value after the last.
        spec: The variable.
        offset: First byte in the centre.
        load_offset: First byte in what a worker pushes, which is twice as long where the rule is a function.
    """

    variable: int
    start: int
    stop: int
    spec: Spec
    offset: int
    load_offset: int

    @property
    def size(self) -> int:
        """How many values."""
        return self.stop - self.start

    @property
    def load_size(self) -> int:
        """How many values a worker pushes for them."""
        return RULES[self.spec.rule].push_factor * self.size

    def centre(self, buffer: Array) -> Array:
        """Return this piece's values in the bytes of the centre."""
        return _view(buffer, self.offset, self.size, self.spec.dtype)

    def load(self, buffer: Array) -> Array:
        """Return this piece's values in the bytes of a push."""
        return _view(buffer, self.load_offset, self.load_size, self.spec.dtype)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The pieces on one server, and how many bytes they take in the centre and in a push."""

    pieces: tuple[Piece, ...]
    nbytes: int
    load_nbytes: int

    def to_json(self) -> list[list[Any]]:
        """Return what the server must know."""
        return [[piece.size, piece.spec.dtype, piece.spec.rule] for piece in self.pieces]

    @classmethod
    def from_json(cls, told: Sequence[Sequence[Any]]) -> "Layout":
        """Return the layout that a worker told of; refuse what no worker of ours says."""
        specs = [Spec(size=int(size), dtype=str(dtype), rule=str(rule)) for size, dtype, rule in told]
        for spec in specs:
            if spec.dtype not in DTYPES or spec.rule not in RULES or spec.size < 0:
                raise PeerError(
                    f"A variable must have a known dtype and rule. Received: {spec}.",
                    fix="Check that all nodes run the same version of emberflow.",
                )
        return lay_out(specs, [(place, 0, spec.size) for place, spec in enumerate(specs)])


def lay_out(specs: Sequence[Spec], runs: Sequence[tuple[int, int, int]]) -> Layout:
    """Place runs ``(variable, start, stop)`` one after the other."""
    pieces = []
    offset = load_offset = 0
    for variable, start, stop in runs:
        spec = specs[variable]
        piece = Piece(
            variable=variable, start=start, stop=stop, spec=spec, offset=offset, load_offset=load_offset
        )
        pieces.append(piece)
        width = np.dtype(spec.dtype).itemsize
        offset += _padded(piece.size * width)
        load_offset += _padded(piece.load_size * width)
    return Layout(pieces=tuple(pieces), nbytes=offset, load_nbytes=load_offset)


def layouts_of(specs: Sequence[Spec], servers: int) -> list[Layout]:
    """Cut all variables into equal parts, one for each server.

    >>> [layout.to_json() for layout in layouts_of([Spec(size=6, dtype="float32", rule="mean")], 2)]
    [[[3, 'float32', 'mean']], [[3, 'float32', 'mean']]]
    """
    return [lay_out(specs, runs) for runs in balanced_ranges([spec.size for spec in specs], servers)]


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _view(buffer: Array, offset: int, size: int, dtype: str) -> Array:
    width = np.dtype(dtype).itemsize
    return buffer[offset : offset + size * width].view(dtype)
