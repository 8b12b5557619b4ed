"""Whether a number of a batch is a mean or a sum over its rows: told from the numbers of its parts."""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from emberflow.strategies.transport.interface import Array


class Kind(enum.IntEnum):
    """How the number of a batch follows from those of its parts."""

    UNKNOWN = 0  # zero or not a number: nothing can be told
    MEAN = 1  # the mean over rows; also what depends on no rows at all
    SUM = 2  # the sum over rows
    STEPS = 3  # the mean over the unmasked steps of sequences
    NEITHER = 4


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """What was found out about one compiled model.

    Attributes:
        outputs: The loss of each output; of the model as a whole where it computes its loss by itself.
        additions: Each entry of ``model.losses``: `add_loss`, activity and weight regularizers.
        states: Each variable of the metrics other than `Mean`.
    """

    outputs: tuple[Kind, ...] = ()
    additions: tuple[Kind, ...] = ()
    states: tuple[Kind, ...] = ()

    def to_codes(self) -> list[int]:
        """Return all of it as numbers, to be sent to other ranks."""
        return [len(self.outputs), len(self.additions), *self.outputs, *self.additions, *self.states]

    @classmethod
    def from_codes(cls, tables: Sequence[Sequence[int]]) -> "Kinds":
        """Return what several ranks found out, from their codes."""
        outputs, additions = tables[0][:2]
        kinds = tuple(merged(Kind(code) for code in column) for column in list(zip(*tables, strict=True))[2:])
        return cls(
            outputs=kinds[:outputs],
            additions=kinds[outputs : outputs + additions],
            states=kinds[outputs + additions :],
        )


def kind_of(whole: Array, parts: Sequence[Array], weights: Sequence[float], tolerance: float) -> Kind:
    """Tell a mean from a sum.

    Args:
        whole: The number, or numbers, of a batch.
        parts: Those of its parts.
        weights: How much each part counts in a mean.
        tolerance: By how much equal numbers may differ.
    """
    if not all(np.isfinite(each).all() for each in (whole, *parts)) or not any(map(np.any, (whole, *parts))):
        return Kind.UNKNOWN
    is_sum = bool((np.abs(whole - sum(parts)) <= tolerance).all())
    if not sum(weights):
        return Kind.UNKNOWN
    mean = sum(part * weight for part, weight in zip(parts, weights, strict=True)) / sum(weights)
    is_mean = bool((np.abs(whole - mean) <= tolerance).all())
    if is_sum and is_mean:
        return Kind.UNKNOWN
    return Kind.SUM if is_sum else Kind.MEAN if is_mean else Kind.NEITHER


def merged(kinds: Iterable[Kind]) -> Kind:
    """Return the one kind that several trials found; those that found none do not count."""
    known = set(kinds) - {Kind.UNKNOWN}
    if not known:
        return Kind.UNKNOWN
    return known.pop() if len(known) == 1 else Kind.NEITHER
