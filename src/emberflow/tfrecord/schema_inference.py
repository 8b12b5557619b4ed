"""The columns of a file, inferred from some of its records.

The type of a column holds every sampled record: integers and fractions together are double, numbers and text are
string, bytes that are not UTF-8 are binary, and different numbers of values are an array.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from emberflow.errors import DataError
from emberflow.tfrecord.codec.assemble import is_text
from emberflow.tfrecord.codec.feature_columns import RecordType
from emberflow.tfrecord.codec.record_parser import Feature, parse_record

_LARGEST_IN_DOUBLE = 1 << 53  # integers up to this are exact in a double


@dataclass(kw_only=True)
class _FeatureSummary:
    """What the sampled records hold for one feature name."""

    kinds: set[str] = field(default_factory=set)
    is_text: bool = True
    fits_double: bool = True
    has_many: bool = False
    is_list: bool = False

    def add(self, feature: Feature) -> None:
        kind, values = feature
        if kind is None:
            return
        if values:
            self.kinds.add(kind)
        self.has_many |= len(values) > 1
        if kind == "bytes":
            self.is_text = self.is_text and all(is_text(value) for value in values)
        elif kind == "int":
            self.fits_double = self.fits_double and all(abs(value) <= _LARGEST_IN_DOUBLE for value in values)


def infer(payloads: Iterable[bytes], record_type: RecordType, *, is_strict: bool = True) -> Any:
    """Return the Arrow schema that holds all the given records, columns sorted by name.

    Args:
        payloads: The sampled records.
        record_type: Their type.
        is_strict: Raise DataError at an invalid record; otherwise skip it.
    """
    if record_type == "ByteArray":
        return pa.schema([pa.field("byteArray", pa.binary())])
    seen: dict[str, _FeatureSummary] = {}
    for payload in payloads:
        try:
            record = parse_record(payload, record_type)
        except DataError:
            if is_strict:
                raise
            continue
        for name, feature in record.items():
            known = seen.setdefault(name, _FeatureSummary())
            if isinstance(feature, list):
                known.is_list = True
                for one in feature:
                    known.add(one)
            else:
                known.add(feature)
    return pa.schema([pa.field(name, _type_of(seen[name])) for name in sorted(seen)])


def _type_of(seen: _FeatureSummary) -> Any:
    leaf = _leaf_of(seen)
    if seen.is_list:
        return list_of(list_of(leaf))
    return list_of(leaf) if seen.has_many else leaf


def list_of(kind: Any) -> Any:
    """Return the type of an array without nulls: features have none, and Spark then skips the check."""
    return pa.list_(pa.field("element", kind, nullable=False))


def _leaf_of(seen: _FeatureSummary) -> Any:
    if not seen.is_text:
        return pa.binary()
    if seen.kinds == {"int"}:
        return pa.int64()
    if seen.kinds == {"float"}:
        return pa.float32()
    if seen.kinds == {"int", "float"} and seen.fits_double:
        return pa.float64()
    return pa.string()  # text, numbers mixed with text, or no value at all, which is null everywhere
