"""The types of single values: one table of what each Arrow type becomes in numpy and in a tensor.

A new Arrow type is one entry of `ELEMENT_TYPES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from emberflow._feed.arrays import is_bytes, is_text

BYTES = "bytes"  # the dtype of tf.string here


@dataclass(frozen=True, kw_only=True)
class ElementType:
    """A family of Arrow types.

    Attributes:
        matches: Tells whether an Arrow type belongs to the family.
        dtype: Numpy's name of the tensor's dtype; empty for the Arrow type's own, `BYTES` for tf.string.
        to_numbers: Turns an array into plain numbers; None where it holds them already.
        is_in_place: Tells whether numpy can view the values of a type in Arrow's own memory.
    """

    matches: Callable[[Any], bool]
    dtype: str = ""
    to_numbers: Callable[[Any], Any] | None = None
    is_in_place: Callable[[Any], bool] = lambda _: False


def _is_microseconds(kind: Any) -> bool:
    return bool(kind.unit == "us")


ELEMENT_TYPES = (
    ElementType(matches=pa.types.is_boolean, dtype="bool"),  # Arrow stores bits, numpy bytes
    ElementType(matches=pa.types.is_integer, is_in_place=lambda _: True),
    ElementType(matches=pa.types.is_floating, is_in_place=lambda _: True),
    ElementType(
        matches=pa.types.is_decimal, dtype="float64", to_numbers=lambda array: array.cast(pa.float64())
    ),
    ElementType(
        matches=pa.types.is_date32,
        dtype="int32",
        to_numbers=lambda array: array.view(pa.int32()),
        is_in_place=lambda _: True,
    ),
    ElementType(
        matches=pa.types.is_timestamp,
        dtype="int64",
        to_numbers=lambda array: _micros(array, pa.timestamp("us", array.type.tz)),
        is_in_place=_is_microseconds,
    ),
    ElementType(
        matches=pa.types.is_duration,
        dtype="int64",
        to_numbers=lambda array: _micros(array, pa.duration("us")),
        is_in_place=_is_microseconds,
    ),
    ElementType(
        matches=pa.types.is_time, dtype="int64", to_numbers=lambda array: _micros(array, pa.time64("us"))
    ),
    ElementType(matches=is_text, dtype=BYTES),
    ElementType(matches=is_bytes, dtype=BYTES),
)


def _micros(array: Any, kind: Any) -> Any:
    return array.cast(kind, safe=False).view(pa.int64())


def element_type(kind: Any) -> ElementType | None:
    """Return the entry of an Arrow type, or None where no tensor can hold it."""
    return next((each for each in ELEMENT_TYPES if each.matches(kind)), None)


def is_fixed_width(kind: Any) -> bool:
    """Tell whether numpy can view the values of a type in Arrow's own memory."""
    found = element_type(kind)
    return found is not None and found.is_in_place(kind)


def as_numbers(array: Any) -> Any:
    """Return an array of plain numbers from one of any numeric type."""
    found = element_type(array.type)
    return array if found is None or found.to_numbers is None else found.to_numbers(array)
