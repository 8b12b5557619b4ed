"""The codec: round trips over many schemas, protobuf's own reading, odd records, types that do not fit."""

import datetime as dt
import decimal
import io
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from emberflow.errors import ConfigError, DataError
from emberflow.tfrecord.codec.decode import decode
from emberflow.tfrecord.codec.encode import encode
from emberflow.tfrecord.codec.feature_columns import columns_of
from emberflow.tfrecord.codec.record_frames import FrameRules, frame_one, read_chunks
from emberflow.tfrecord.codec.record_parser import parse_record, value_of
from emberflow.tfrecord.schema_inference import infer, list_of
from tests.unit.example_proto import Example, SequenceExample, content, fill

MANY = settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
UTC = pa.timestamp("us", "UTC")
VECTOR = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.int32())),
        pa.field("values", pa.list_(pa.float64())),
    ]
)

int64s = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-200, 200)
floats = st.floats(width=32)
LEAVES: list[tuple[Any, Any]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int16(), st.integers(-(1 << 15), (1 << 15) - 1)),
    (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (pa.int64(), int64s),
    (pa.bool_(), st.booleans()),
    (pa.float32(), floats),
    (pa.float64(), st.floats()),
    (pa.string(), st.text(max_size=20) | st.just("é" * 200)),
    (pa.binary(), st.binary(max_size=20) | st.just(b"\xff" * 300)),
    (pa.date32(), st.dates()),
    (UTC, st.datetimes(timezones=st.just(dt.UTC))),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
]


def chunks_of(data: bytes, chunk_bytes: int = 1 << 20) -> Any:
    return read_chunks(io.BytesIO(data), FrameRules(chunk_bytes=chunk_bytes))


def decoded(data: bytes, schema: Any, record_type: Any = "Example", chunk_bytes: int = 1 << 20) -> Any:
    """Decode a file that must be right."""
    columns = columns_of(schema, record_type)
    tables = [pa.table([pa.array([], field.type) for field in schema], schema=schema)]
    for chunk in chunks_of(data, chunk_bytes):
        assert chunk.broken is None
        got = decode(chunk, columns, record_type)
        assert not got.refused, got.refused
        tables.append(pa.table(got.arrays, schema=schema))
    return pa.concat_tables(tables)


def encoded(table: Any, record_type: Any = "Example", doubles: Any = "bytes") -> bytes:
    columns = columns_of(table.schema, record_type)
    batches = table.combine_chunks().to_batches()
    return b"".join(encode(batch, columns, record_type, doubles).data.tobytes() for batch in batches)


def payloads_of(data: bytes) -> list[bytes]:
    return [chunk.payload(row) for chunk in chunks_of(data) for row in range(len(chunk.starts))]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right)


@st.composite
def tables(draw: Any, deepest: int = 1, leaves: Any = LEAVES) -> Any:
    """A table of random columns, scalars and arrays, with nulls."""
    rows = draw(st.integers(0, 12))
    names = draw(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=5, unique=True))
    arrays = []
    for _ in names:
        kind, values = draw(st.sampled_from(leaves))
        for _ in range(draw(st.integers(0, deepest))):
            kind, values = pa.list_(kind), st.lists(values, max_size=4)
        if draw(st.booleans()):
            values = st.none() | values
        arrays.append(pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind))
    return pa.table(arrays, names=names)


@MANY
@given(tables(), st.sampled_from([64, 1 << 20]))
def test_what_is_written_comes_back(table: Any, chunk_bytes: int) -> None:
    back = decoded(encoded(table), table.schema, chunk_bytes=chunk_bytes)
    assert same(back.to_pylist(), table.to_pylist())


@MANY
@given(tables(deepest=2))
def test_what_is_written_as_sequence_examples_comes_back(table: Any) -> None:
    back = decoded(encoded(table, "SequenceExample"), table.schema, "SequenceExample")
    assert same(back.to_pylist(), table.to_pylist())


@settings(MANY, max_examples=200)
@given(tables(), st.sampled_from(["float", "bytes"]))
def test_protobuf_reads_the_same_features(table: Any, doubles: Any) -> None:
    for payload, row in zip(payloads_of(encoded(table, doubles=doubles)), table.to_pylist(), strict=True):
        features = Example.FromString(payload).features.feature
        assert set(features) == {name for name, value in row.items() if value is not None}
        record = parse_record(payload, "Example")
        assert same({name: content(feature) for name, feature in features.items()}, record)


features = st.one_of(
    st.tuples(st.none(), st.just([])),
    st.tuples(st.just("int"), st.lists(int64s, max_size=3)),
    st.tuples(st.just("float"), st.lists(floats, max_size=3)),
    st.tuples(
        st.just("bytes"), st.lists(st.binary(max_size=6) | st.text(max_size=6).map(str.encode), max_size=3)
    ),
)
records = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "long name of a feature"]), features), max_size=8
)


def examples_file(rows: list[Any]) -> bytes:
    data = b""
    for row in rows:
        message = Example()
        for name, (kind, values) in row.items():
            fill(message.features.feature[name], kind, values)
        data += frame_one(message.SerializeToString())
    return data


@MANY
@given(records)
def test_the_reader_takes_every_record_that_the_type_was_inferred_from(rows: list[Any]) -> None:
    data = examples_file(rows)
    schema = infer(payloads_of(data), "Example")
    assume(len(schema))
    assert schema.names == sorted({name for row in rows for name in row})
    back = decoded(data, schema)
    columns = columns_of(schema, "Example")
    expected = [
        {
            column.name: value_of(parse_record(payload, "Example").get(column.name), column)
            for column in columns
        }
        for payload in payloads_of(data)
    ]
    assert same(back.to_pylist(), expected)


@settings(MANY, max_examples=300)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b"]), features | st.lists(features, max_size=3)), max_size=5
    )
)
def test_inference_of_sequence_examples(rows: list[Any]) -> None:
    data = b""
    for row in rows:
        message = SequenceExample()
        for name, value in row.items():
            if isinstance(value, list):
                message.feature_lists.feature_list[name].SetInParent()
                for kind, values in value:
                    fill(message.feature_lists.feature_list[name].feature.add(), kind, values)
            else:
                fill(message.context.feature[name], *value)
        data += frame_one(message.SerializeToString())
    schema = infer(payloads_of(data), "SequenceExample")
    assume(len(schema))
    assert decoded(data, schema, "SequenceExample").num_rows == len(rows)


@MANY
@given(
    tables(leaves=LEAVES[:9]), st.randoms(use_true_random=False)
)  # times are integers; Python's end at 9999
def test_a_damaged_record_is_refused_or_read_as_protobuf_reads_it(table: Any, source: Any) -> None:
    """Damage under a right checksum: the fast way and the plain parser decide alike, never with a wrong value."""
    payloads = payloads_of(encoded(table))
    damaged = [_damage(payload, source) for payload in payloads]
    columns = columns_of(table.schema, "Example")
    for chunk in chunks_of(b"".join(map(frame_one, damaged))):
        got = decode(chunk, columns, "Example")
        good = dict(
            zip(got.rows.tolist(), pa.table(got.arrays, schema=table.schema).to_pylist(), strict=True)
        )
        for row, payload in enumerate(damaged):
            try:
                record = parse_record(payload, "Example", table.column_names)
                expected = {column.name: value_of(record.get(column.name), column) for column in columns}
                expected = pa.Table.from_pylist([expected], table.schema).to_pylist()[0]
            except DataError:
                assert row in got.refused
                continue
            assert same(good[row], expected)
            try:
                message = Example.FromString(payload)
            except DecodeError:  # damage in a feature that was not asked for
                continue
            seen = {name: content(message.features.feature[name]) for name in record}
            assert same(seen, record)


def _damage(payload: bytes, source: Any) -> bytes:
    data = bytearray(payload)
    if data and source.random() < 0.7:
        for _ in range(source.randint(1, 3)):
            data[source.randrange(len(data))] = source.choice(
                [0, 0x0A, 0x12, 0x1A, 0x7F, 0x80, 0xFF, source.randrange(256)]
            )
    if source.random() < 0.2:
        del data[source.randrange(len(data) + 1) :]
    return bytes(data)


def entry(key: bytes, feature: bytes) -> bytes:
    inside = b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(feature)]) + feature
    return b"\x0a" + bytes([len(inside)]) + inside


def example_of(*entries: bytes) -> bytes:
    inside = b"".join(entries)
    return b"\x0a" + bytes([len(inside)]) + inside


ODD = {
    "unpacked integers": (example_of(entry(b"x", b"\x1a\x04\x08\x07\x08\x08")), [7, 8]),
    "packed in two pieces": (example_of(entry(b"x", b"\x1a\x06\x0a\x01\x07\x0a\x01\x08")), [7, 8]),
    "a varint longer than needed": (example_of(entry(b"x", b"\x1a\x05\x0a\x03\x87\x80\x00")), [7]),
    "the key twice": (
        example_of(entry(b"x", b"\x1a\x03\x0a\x01\x01"), entry(b"x", b"\x1a\x03\x0a\x01\x02")),
        [2],
    ),
    "value before key": (example_of(b"\x0a\x0a\x12\x05\x1a\x03\x0a\x01\x05\x0a\x01x"), [5]),
    "an unknown field": (example_of(entry(b"x", b"\x1a\x03\x0a\x01\x06")) + b"\x28\x01", [6]),
    "two messages of features": (
        example_of(entry(b"x", b"\x1a\x03\x0a\x01\x06")) + example_of(entry(b"y", b"")),
        [6],
    ),
    "another kind first": (example_of(entry(b"x", b"\x0a\x03\x0a\x01z\x1a\x03\x0a\x01\x06")), [6]),
    "no kind": (example_of(entry(b"x", b"")), None),
    "no such key": (example_of(entry(b"other", b"\x1a\x03\x0a\x01\x06")), None),
    "no features": (b"", None),
    "an entry without a value": (example_of(b"\x0a\x03\x0a\x01x"), None),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("neighbours", [0, 3])
def test_odd_but_legal_records(name: str, neighbours: int) -> None:
    payload, expected = ODD[name]
    usual = example_of(entry(b"x", b"\x1a\x03\x0a\x01\x09"))
    data = frame_one(usual) * neighbours + frame_one(payload) + frame_one(usual) * neighbours
    back = decoded(data, pa.schema([("x", pa.list_(pa.int64()))]))
    assert back["x"].to_pylist() == [[9]] * neighbours + [expected] + [[9]] * neighbours
    kinds = content(Example.FromString(payload).features.feature["x"])
    assert kinds[1] == (expected or []), "protobuf agrees"


def test_records_in_any_order_of_features_with_missing_and_extra_ones() -> None:
    source = np.random.default_rng(3)
    names = [f"feature {number}" for number in range(30)] + ["a name that is longer than eight bytes"]
    rows = []
    data = b""
    for number in range(200):
        chosen = [name for name in source.permutation(names).tolist() if source.random() < 0.8]
        entries = [
            entry(name.encode(), struct.pack("<2sBB", b"\x1a\x03", 10, 1) + bytes([number % 100]))
            for name in chosen
        ]
        inside = b"".join(entries)
        data += frame_one(b"\x0a" + bytes([len(inside) & 0x7F | 0x80, len(inside) >> 7]) + inside)
        rows.append({name: number % 100 if name in chosen else None for name in names[5:]})
    assert decoded(data, pa.schema([(name, pa.int64()) for name in names[5:]])).to_pylist() == rows


@example(0)
@settings(MANY, max_examples=50)
@given(st.integers(0, 1 << 30))
def test_lists_of_many_lengths(seed: int) -> None:
    source = np.random.default_rng(seed)
    counts = source.choice([0, 1, 2, 100, 1000], 20)
    table = pa.table(
        {
            "i": pa.array([source.integers(-(1 << 62), 1 << 62, count).tolist() for count in counts]),
            "f": pa.array(
                [source.random(count, np.float32).tolist() for count in counts], pa.list_(pa.float32())
            ),
            "s": pa.array(
                [["x" * int(n % 7) for n in range(count)] for count in counts], pa.list_(pa.string())
            ),
            "b": pa.array([source.bytes(int(count) * 3) for count in counts]),
        }
    )
    assert decoded(encoded(table), table.schema).equals(table)


def test_doubles_are_narrowed_unless_asked_otherwise() -> None:
    table = pa.table({"d": [0.1, 1e300], "l": [[0.1], []]})
    narrow = decoded(encoded(table, doubles="float"), table.schema)
    assert narrow["d"].to_pylist() == [float(np.float32(0.1)), math.inf]
    assert decoded(encoded(table, doubles="bytes"), table.schema).equals(table)


def test_vectors_dense_and_sparse() -> None:
    dense = {"type": 1, "size": None, "indices": None, "values": [1.5, 0.1]}
    sparse = {"type": 0, "size": 5, "indices": [1, 4], "values": [0.25, 8.0]}
    table = pa.table(
        {"v": pa.array([dense, None, sparse, dense, {**sparse, "indices": [], "values": []}], VECTOR)}
    )
    back = decoded(encoded(table), table.schema)["v"].to_pylist()
    assert [row and row["values"] for row in back] == [
        [1.5, 0.1],
        None,
        [0, 0.25, 0, 0, 8],
        [1.5, 0.1],
        [0] * 5,
    ]
    floats_only = content(
        Example.FromString(payloads_of(encoded(table, doubles="float"))[2]).features.feature["v"]
    )
    assert floats_only == ("float", [0, 0.25, 0, 0, 8])


@pytest.mark.parametrize(
    ("kind", "feature", "value"),
    [
        (pa.float64(), ("int", [3]), 3.0),
        (pa.float32(), ("int", [1 << 24]), float(1 << 24)),
        (pa.float32(), ("int", [1 << 40]), float(1 << 40)),
        (pa.string(), ("int", [-3]), "-3"),
        (pa.string(), ("float", [0.1]), "0.1"),
        (pa.binary(), ("int", [12]), b"12"),
        (pa.decimal128(5, 2), ("float", [1.1]), decimal.Decimal("1.10")),
        (pa.decimal128(5, 2), ("bytes", [b"12.5"]), decimal.Decimal("12.50")),
        (pa.bool_(), ("int", [5]), True),
        (pa.int64(), ("int", []), None),
        (pa.string(), ("float", []), None),
        (pa.list_(pa.string()), ("int", [1, 2]), ["1", "2"]),
        (pa.float64(), ("bytes", [struct.pack("<d", 0.1)]), 0.1),
    ],
)
def test_kinds_that_a_type_takes(kind: Any, feature: Any, value: Any) -> None:
    back = decoded(examples_file([{"x": feature}] * 3), pa.schema([("x", kind)]))
    assert back["x"].to_pylist() == [value] * 3


@pytest.mark.parametrize(
    ("kind", "feature"),
    [
        (pa.int64(), ("float", [1.0])),
        (pa.int64(), ("bytes", [b"1"])),
        (pa.int64(), ("int", [1, 2])),
        (pa.int8(), ("int", [128])),
        (pa.int32(), ("int", [-(1 << 31) - 1])),
        (pa.date32(), ("int", [1 << 40])),
        (pa.float32(), ("int", [(1 << 24) + 1])),
        (pa.float64(), ("int", [(1 << 53) + 1])),
        (pa.float64(), ("bytes", [b"1234567"])),
        (pa.float32(), ("bytes", [b"1234"])),
        (pa.string(), ("bytes", [b"\xff\xfe"])),
        (pa.decimal128(5, 2), ("bytes", [b"1.234"])),
        (pa.decimal128(5, 2), ("bytes", [b"12345.6"])),
        (pa.decimal128(5, 2), ("bytes", [b"ten"])),
        (pa.decimal128(5, 2), ("float", [math.nan])),
        (pa.list_(pa.int64()), ("float", [1.0])),
    ],
)
def test_values_that_a_type_cannot_hold_are_refused_not_bent(kind: Any, feature: Any) -> None:
    (chunk,) = chunks_of(examples_file([{"x": feature}] * 3))
    got = decode(chunk, columns_of(pa.schema([("x", kind)]), "Example"), "Example")
    assert sorted(got.refused) == [0, 1, 2]
    assert "Column 'x'" in str(got.refused[0])
    assert "Received: " in str(got.refused[0])


def test_a_missing_value_in_a_column_that_may_not_be_null_is_refused() -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    (chunk,) = chunks_of(examples_file([{"x": ("int", [1])}, {}, {"x": ("int", [])}]))
    got = decode(chunk, columns_of(schema, "Example"), "Example")
    assert (got.arrays[0].to_pylist(), sorted(got.refused)) == ([1], [1, 2])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"x": ("int", [1])}, {"x": ("int", [2])}], pa.int64()),
        ([{"x": ("float", [1])}], pa.float32()),
        ([{"x": ("bytes", ["é".encode()])}], pa.string()),
        ([{"x": ("bytes", [b"a"])}, {"x": ("bytes", [b"\xff"])}], pa.binary()),
        ([{"x": ("int", [1])}, {"x": ("float", [2])}], pa.float64()),
        ([{"x": ("int", [(1 << 53) + 1])}, {"x": ("float", [2])}], pa.string()),
        ([{"x": ("int", [1])}, {"x": ("bytes", [b"a"])}], pa.string()),
        ([{"x": ("int", [1])}, {"x": ("int", [1, 2])}], list_of(pa.int64())),
        ([{"x": ("int", [])}, {"x": ("int", [1])}, {}], pa.int64()),
        ([{"x": ("int", [])}, {"x": (None, [])}], pa.string()),
    ],
)
def test_inferred_types(rows: list[Any], expected: Any) -> None:
    assert infer(payloads_of(examples_file(rows)), "Example") == pa.schema([("x", expected)])


def test_byte_array_records_are_passed_through() -> None:
    table = pa.table({"byteArray": pa.array([b"a", b"", b"\xff" * 1000], pa.binary())})
    assert decoded(encoded(table, "ByteArray"), table.schema, "ByteArray").equals(table)
    assert payloads_of(encoded(table, "ByteArray"))[2] == b"\xff" * 1000


@pytest.mark.parametrize(
    ("schema", "record_type", "message"),
    [
        ([("m", pa.map_(pa.string(), pa.int64()))], "Example", "Received: column 'm'"),
        ([("s", pa.struct([("a", pa.int64())]))], "Example", "Received: column 's'"),
        ([("l", pa.list_(pa.list_(pa.int64())))], "Example", "SequenceExample"),
        ([("l", pa.list_(pa.list_(pa.list_(pa.int64()))))], "SequenceExample", "Received: column 'l'"),
        ([("a", pa.binary()), ("b", pa.binary())], "ByteArray", "one binary column"),
        ([("a", pa.string())], "ByteArray", "one binary column"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_before_writing(
    schema: Any, record_type: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        columns_of(pa.schema(schema), record_type)


def test_a_null_inside_an_array_is_refused() -> None:
    with pytest.raises(DataError, match="column 'x'"):
        encoded(pa.table({"x": [["a", None]]}))
