"""The types of single values: one table of how each Arrow type is stored in a feature.

A new Arrow type that is stored as an integer is one entry of `LEAF_TYPES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class LeafType:
    """A family of Arrow types.

    Attributes:
        matches: Tells whether an Arrow type belongs to the family.
        fast_kinds: The kinds of features that the fast path decodes; the plain parser reads or rejects the others.
        to_integers: Turns an array into integers, for types that are stored as integers but are not integers.
        from_integers: Turns int64 numbers into an array of a type of the family; None: a plain numeric conversion.
    """

    matches: Callable[[Any], bool]
    fast_kinds: frozenset[str]
    to_integers: Callable[[Any], Any] | None = None
    from_integers: Callable[[Any, Any], Any] | None = None


LEAF_TYPES = {
    "bool": LeafType(
        matches=pa.types.is_boolean,
        fast_kinds=frozenset({"int"}),
        to_integers=lambda array: array.cast(pa.int8()),
        from_integers=lambda numbers, _: pa.array(numbers != 0),
    ),
    "int": LeafType(matches=pa.types.is_integer, fast_kinds=frozenset({"int"})),
    "double": LeafType(matches=pa.types.is_float64, fast_kinds=frozenset({"float", "int", "bytes"})),
    "float": LeafType(matches=pa.types.is_floating, fast_kinds=frozenset({"float", "int"})),
    "decimal": LeafType(matches=pa.types.is_decimal, fast_kinds=frozenset()),
    "string": LeafType(
        matches=lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
        fast_kinds=frozenset({"bytes"}),
    ),
    "binary": LeafType(
        matches=lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
        fast_kinds=frozenset({"bytes"}),
    ),
    "date": LeafType(
        matches=pa.types.is_date32,
        fast_kinds=frozenset({"int"}),
        to_integers=lambda array: array.cast(pa.int32()),
        from_integers=lambda numbers, _: pa.array(numbers.astype(np.int32)).view(pa.date32()),
    ),
    "timestamp": LeafType(
        matches=pa.types.is_timestamp,
        fast_kinds=frozenset({"int"}),
        to_integers=lambda array: array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()),
        from_integers=lambda numbers, kind: pa.array(numbers).view(kind),
    ),
}


def leaf_of(kind: Any) -> str | None:
    """Return the family of an Arrow type, or None where no feature can hold it.

    >>> leaf_of(pa.float64()), leaf_of(pa.float32()), leaf_of(pa.month_day_nano_interval())
    ('double', 'float', None)
    """
    return next((name for name, each in LEAF_TYPES.items() if each.matches(kind)), None)
