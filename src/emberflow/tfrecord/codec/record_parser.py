"""One record at a time, in plain Python: the parser for every valid form of protobuf.

The fast path (`walk`, `decode`) reads records as all known writers write them. This parser reads the others:
irregular ones, invalid ones, and those that do not have the schema's type. It decides what a record means.
"""

import struct
from collections.abc import Collection, Iterator
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import numpy as np

from emberflow.errors import DataError
from emberflow.tfrecord.codec.feature_columns import PACKED, Column, RecordType
from emberflow.tfrecord.codec.feature_values import Kind

Feature = tuple[Kind | None, list[Any]]
"""The kind (None where it is not set) and the values."""

Record = dict[str, Feature | list[Feature]]

_KINDS: dict[int, Kind] = {1: "bytes", 2: "float", 3: "int"}
_SIZES = {0: 0, 1: 8, 2: 0, 5: 4}
_WIDE = Context(prec=100)


def parse_record(payload: bytes, record_type: RecordType, names: Collection[str] | None = None) -> Record:
    """Return the features of a record by name; raise DataError for an invalid message.

    Args:
        payload: The serialized message.
        record_type: The type of the message.
        names: The features to parse; others are skipped. None for all.
    """
    wanted = None if names is None else {name.encode() for name in names}
    record: Record = {}
    contexts: list[bytes] = []
    for number, value in _messages(payload):
        if number == 1:
            contexts.append(value)
        elif number == 2 and record_type == "SequenceExample":
            for name, body in _chosen(value, wanted):
                record[name] = [_feature(part) for part in _repeated(body)]
    for message in contexts:  # after the lists: for a name in both, the context counts
        record.update((name, _feature(body)) for name, body in _chosen(message, wanted))
    return record


def _chosen(message: bytes, wanted: Collection[bytes] | None) -> Iterator[tuple[str, bytes]]:
    for key, body in entries(message):
        if wanted is not None and key not in wanted:
            continue
        try:
            yield key.decode(), body
        except UnicodeDecodeError as error:
            raise _malformed("a feature whose name is not UTF-8") from error


def value_of(feature: Feature | list[Feature] | None, column: Column) -> Any:
    """Return a column's value of a feature; raise DataError where the type cannot hold it."""
    if isinstance(feature, list):
        return _from_list(feature, column)
    kind, values = feature if feature is not None else (None, [])
    if kind is None:
        return _none(column)
    if column.packed and kind in PACKED:
        return np.array(values, PACKED[kind]).tobytes()
    found = _leaves(kind, values, column)
    if column.depth == 2:
        return [found]  # a feature of the context, where other records have a list of features
    if column.is_vector:
        return {"type": 1, "size": None, "indices": None, "values": found}
    return found if column.depth == 1 else _only(found, column)


def _only(found: list[Any], column: Column) -> Any:
    if not found:
        return _none(column)
    if len(found) > 1:
        raise _refusal(column, f"{len(found)} values", "read it as an array")
    return found[0]


def _from_list(features: list[Feature], column: Column) -> Any:
    parts = [_leaves(kind, values, column) if kind is not None else [] for kind, values in features]
    if column.depth == 2:
        return parts
    if column.depth == 1 and not column.is_vector and all(len(part) == 1 for part in parts):
        return [part[0] for part in parts]
    raise _refusal(column, "a feature list", "read it as an array of arrays")


def _none(column: Column) -> None:
    if not column.nullable:
        raise _refusal(column, "no value", "make the column nullable in the schema")


def _leaves(kind: Kind, values: list[Any], column: Column) -> list[Any]:
    if kind == "bytes" and column.leaf == "double":
        blob = b"".join(values)
        if len(blob) % 8 or (not column.depth and len(values) == 1 and len(blob) != 8):
            raise _refusal(column, f"{len(blob)} bytes", 'doubles="bytes" has eight bytes per number')
        return list(struct.unpack(f"<{len(blob) // 8}d", blob))
    try:
        return [_coerce(kind, value, column) for value in values]
    except (ValueError, OverflowError, InvalidOperation) as error:
        if isinstance(error, DataError):
            raise
        raise _refusal(column, f"{values[:3]!r}", str(error)) from error


def _coerce(kind: Kind, value: Any, column: Column) -> Any:
    """Return the value in the column's type, if nothing is lost."""
    if column.leaf in {"string", "binary"}:
        data = value if kind == "bytes" else _text(value).encode()
        return data.decode() if column.leaf == "string" else data
    if column.leaf == "decimal" and kind == "bytes":
        return _decimal(value.decode(), column, is_exact=True)
    if kind == "bytes":
        raise _refusal(column, "bytes", "read it as string or binary")
    if column.leaf in {"float", "double"}:
        return _float(value, column)
    if column.leaf == "decimal":
        return _decimal(_text(value), column, is_exact=kind == "int")
    if kind == "float":
        raise _refusal(column, "floats", "read it as float or double")
    return _from_int(value, column)


def _text(value: Any) -> str:
    """Return a number as text: a float with as many digits as a float32 has."""
    return str(value) if isinstance(value, int) else str(np.float32(value))


def _float(value: Any, column: Column) -> float:
    wide = float(value)
    narrow = struct.unpack("<f", struct.pack("<f", wide))[0] if column.leaf == "float" else wide
    if isinstance(value, int) and int(narrow) != value:
        raise _refusal(column, f"the integer {value}", "no float holds it exactly: read it as long or string")
    return narrow


def _decimal(text: str, column: Column, *, is_exact: bool) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise _refusal(column, text, "a decimal has no such value: read it as double")
    rounded = number.quantize(Decimal(1).scaleb(-column.leaf_type.scale), context=_WIDE)
    if (is_exact and rounded != number) or len(rounded.as_tuple().digits) > column.leaf_type.precision:
        raise _refusal(column, text, "give the decimal more digits")
    return rounded


def _from_int(value: int, column: Column) -> Any:
    if column.leaf == "bool":
        return bool(value)
    bits = column.leaf_type.bit_width
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise _refusal(column, f"the integer {value}", f"{column.leaf_type} cannot hold it: read it as long")
    return value


def _refusal(column: Column, found: str, remedy: str) -> DataError:
    return DataError(
        f"Column {column.name!r} has type {column.type}. Received: {found}.",
        fix=f"Change the schema: {remedy}.",
    )


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield the fields of one message: number, wire type, and the raw value (an int for a varint)."""
    at, end = 0, len(data)
    while at < end:
        key, at = read_varint(data, at)
        number, wire = key >> 3, key & 7
        if not number or wire not in _SIZES:
            raise _malformed(f"a field with number {number} and wire type {wire}")
        if wire == 0:
            value, at = read_varint(data, at)
            yield number, wire, value
            continue
        size = _SIZES[wire]
        if wire == 2:
            size, at = read_varint(data, at)
        if at + size > end:
            raise _malformed(f"a field of {size} bytes where {end - at} are left")
        yield number, wire, data[at : at + size]
        at += size


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that starts at a byte, and where it ends."""
    value = 0
    for place in range(10):
        if at + place >= len(data):
            raise _malformed("a number that is cut short")
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + place + 1
    raise _malformed("a number of more than ten bytes")


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the fields of a message that has messages only; unknown numbers are skipped."""
    for number, wire, value in _fields(data):
        if number in _KINDS:
            if wire != 2:
                raise _malformed(f"a field {number} of wire type {wire} where a message should be")
            yield number, value


def _repeated(message: bytes) -> Iterator[bytes]:
    return (value for number, value in _messages(message) if number == 1)


def entries(message: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of the entries of a map; a missing one is empty."""
    for entry in _repeated(message):
        key, body = b"", b""
        for number, value in _messages(entry):
            if number == 1:
                key = value
            elif number == 2:
                body += value  # repeated messages are merged
        yield key, body


def _feature(message: bytes) -> Feature:
    kind: Kind | None = None
    values: list[Any] = []
    for number, body in _messages(message):
        if _KINDS[number] != kind:  # one kind only: the last one counts
            kind, values = _KINDS[number], []
        values += _list_values(_KINDS[number], body)
    return kind, values


def _list_values(kind: Kind, message: bytes) -> list[Any]:
    values: list[Any] = []
    for number, wire, value in _fields(message):
        if number != 1:
            continue
        if kind == "bytes" and wire == 2:
            values.append(value)
        elif kind == "float" and wire in {2, 5}:
            values += _floats(value)
        elif kind == "int" and wire in {0, 2}:
            values += _integers(value) if wire else [_signed(value)]
        else:
            raise _malformed(f"a value of wire type {wire} in a list of {kind}")
    return values


def _floats(data: bytes) -> list[float]:
    if len(data) % 4:
        raise _malformed(f"a list of floats of {len(data)} bytes")
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def _integers(data: bytes) -> list[int]:
    values, at = [], 0
    while at < len(data):
        value, at = read_varint(data, at)
        values.append(_signed(value))
    return values


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _malformed(found: str) -> DataError:
    return DataError(
        f"Expected a serialized Example or SequenceExample. Received: {found}.",
        fix='Check recordType, or read the raw records with .option("recordType", "ByteArray").',
    )
