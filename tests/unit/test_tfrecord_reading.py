"""Options, paths, parts, broken records by mode, inference over files: all that needs no Spark session."""

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

from emberflow import storage
from emberflow.errors import ConfigError, DataError, StorageError
from emberflow.tfrecord.codec.encode import encode
from emberflow.tfrecord.codec.feature_columns import columns_of
from emberflow.tfrecord.codec.record_frames import frame_one, masked
from emberflow.tfrecord.compression import CODECS, Codec
from emberflow.tfrecord.input_files import FilePart, find_files, folder_of, split_files
from emberflow.tfrecord.options import parse_options
from emberflow.tfrecord.part_reader import infer_schema, make_plan, read_parts
from emberflow.tfrecord.record_files import writing


def file_of(table: Any) -> bytes:
    (batch,) = table.combine_chunks().to_batches()
    return encode(batch, columns_of(batch.schema, "Example"), "Example", "float").data.tobytes()


def numbers(start: int, stop: int) -> bytes:
    return file_of(pa.table({"x": list(range(start, stop))}))


def rows_of(path: Any, schema: Any = None, **options: str) -> list[dict[str, Any]]:
    """Read as a job would: all tasks, one after the other."""
    parsed = parse_options({"path": str(path), **options})
    files = find_files(parsed)
    schema = infer_schema(files, parsed) if schema is None else schema
    keys = {key for file in files for key in file.keys}
    plan = make_plan(schema, parsed, sorted(keys))
    return [
        row
        for parts in split_files(files, parsed)
        for batch in read_parts(parts, plan, parsed)
        for row in batch.to_pylist()
    ]


def xs(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["x"] for row in rows)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recordType", "Sample"),
        ("compression", "snappy"),
        ("codec", "org.apache.hadoop.io.compress.SnappyCodec"),
        ("mode", "LENIENT"),
        ("verifyCrc", "perhaps"),
        ("maxRecordBytes", "0"),
        ("inferRecords", "many"),
        ("samplingRatio", "1.5"),
        ("writeLocality", "nearby"),
        ("doubles", "float64"),
        ("maxFileAge", "a while"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"Received: {name}='{value}'"):
        parse_options({name: value})


def test_numbers_are_read_packed_where_that_is_asked_for(tmp_path: Path) -> None:
    floats = [[0.5, 1.5], [], None, [2.5] * 300]
    ints = [[1, -1], [1 << 60], [], None]
    table = pa.table(
        {
            "f": pa.array(floats, pa.list_(pa.float32())),
            "i": pa.array(ints, pa.list_(pa.int64())),
            "b": pa.array([b"\xff", b"", None, b"x"], pa.binary()),
        }
    )
    # The last record has its floats one by one, which only the plain parser reads.
    loose = bytes.fromhex("0a13 0a11 0a0166 120c 120a 0d0000003f 0d0000803f")
    (tmp_path / "x.tfrecord").write_bytes(file_of(table) + frame_one(loose))
    rows = rows_of(tmp_path, packed="f,i,b")
    packed = [None if row["f"] is None else np.frombuffer(row["f"], "<f4").tolist() for row in rows]
    assert packed == [*floats, [0.5, 1.0]]
    assert [None if row["i"] is None else np.frombuffer(row["i"], "<i8").tolist() for row in rows] == [
        *ints,
        None,
    ]
    assert [row["b"] for row in rows] == [b"\xff", b"", None, b"x", None]
    with pytest.raises(ConfigError, match="'packed' for f list<"):
        rows_of(tmp_path, table.schema, packed="f")


def test_options_are_read_as_both_connectors_write_them() -> None:
    parsed = parse_options(
        {
            "recordtype": "SequenceExample",
            "codec": "org.apache.hadoop.io.compress.GzipCodec",
            "writeLocality": "local",
        }
    )
    assert (parsed.record_type, parsed.locality) == ("SequenceExample", "local")
    assert parsed.compression is CODECS["gzip"]
    assert parse_options({"codec": ""}).compression is CODECS["none"]
    assert parse_options({"COMPRESSION": "GZIP"}).compression is CODECS["gzip"]
    assert parse_options({"columns": '["a,b", "c"]'}).columns == ("a,b", "c")
    assert parse_options({"columns": "a, b"}).columns == ("a", "b")
    assert parse_options({"maxFileAge": "2h"}).max_file_age == 7200


def test_paths_of_every_form(tmp_path: Path) -> None:
    for place, name in enumerate(("a/one", "a/two", "b/three", "a/_hidden", "a/.crc", "a/deep/four")):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(numbers(place, place + 1))
    assert xs(rows_of(tmp_path / "a" / "one")) == [0]
    assert xs(rows_of(tmp_path / "a")) == [0, 1], "hidden files and deeper folders are passed over"
    assert xs(rows_of(tmp_path / "a", recursiveFileLookup="true")) == [0, 1, 5]
    assert xs(rows_of(tmp_path / "a", pathGlobFilter="t*")) == [1]
    assert xs(rows_of(f"{tmp_path}/*/t*")) == [1, 2]
    assert xs(rows_of(f"{tmp_path}/{{a,b}}")) == [0, 1, 2]
    assert xs(rows_of(f"{tmp_path}/a,{tmp_path}/b")) == [0, 1, 2]
    assert xs(rows_of("", paths=json.dumps([f"{tmp_path}/b", f"{tmp_path}/a/one"]))) == [0, 2]
    assert xs(rows_of(f"file:{tmp_path}/a")) == [0, 1]
    with pytest.raises(StorageError, match="which does not exist"):
        rows_of(tmp_path / "none")
    with pytest.raises(StorageError, match="which does not exist"):
        rows_of(f"{tmp_path}/none*")


def test_other_file_systems() -> None:
    storage.write_bytes("memory://tfrecord-paths/x.tfrecord", numbers(0, 3))
    storage.write_bytes("memory://tfrecord-paths/y.tfrecord.gz", gzip.compress(numbers(3, 5)))
    assert xs(rows_of("memory://tfrecord-paths")) == [0, 1, 2, 3, 4]


def test_folders_with_values_become_columns(tmp_path: Path) -> None:
    folders = [
        [("day", "2024-01-01"), ("city", "São Paulo/1")],
        [("day", "2024-01-02"), ("city", None)],
    ]
    for place, keys in enumerate(folders):
        file = tmp_path / folder_of(keys) / "part"
        file.parent.mkdir(parents=True)
        file.write_bytes(numbers(place, place + 1))
    schema = pa.schema([("x", pa.int64()), ("day", pa.date32()), ("city", pa.string())])
    rows = sorted(rows_of(tmp_path, schema), key=lambda row: row["x"])
    assert [(str(row["day"]), row["city"]) for row in rows] == [
        ("2024-01-01", "São Paulo/1"),
        ("2024-01-02", None),
    ]
    with pytest.raises(ConfigError, match="comes from a folder name"):
        rows_of(tmp_path, pa.schema([("x", pa.int64()), ("day", pa.int32())]))


def test_large_files_are_split_and_small_ones_share_a_task(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(numbers(0, 5000))
    for place in range(5):
        (tmp_path / f"small{place}").write_bytes(numbers(place, place + 1))
    options = parse_options({"path": str(tmp_path), "splitBytes": "20000"})
    tasks = split_files(find_files(options), options)
    parts = [part for task in tasks for part in task]
    assert sum(part.file.path.endswith("large") for part in parts) > 5
    assert len(tasks) < len(parts)
    rows = rows_of(tmp_path, splitBytes="20000", batchBytes="5000")
    assert xs(rows) == sorted([*range(5000), *range(5)])
    assert len(split_files(find_files(options), parse_options({"splitBytes": "0"}))) == 1
    (tmp_path / "large").write_bytes(gzip.compress(numbers(0, 5000), 0))
    gzipped = parse_options({"path": str(tmp_path / "large"), "splitBytes": "20000", "compression": "gzip"})
    assert split_files(find_files(gzipped), gzipped) == [[FilePart(file=find_files(gzipped)[0])]]


def broken_folder(folder: Path) -> Path:
    """Three files: one record with a wrong checksum, one that is no Example, one file cut short."""
    folder.mkdir()
    wrong = bytearray(numbers(0, 3))
    wrong[len(wrong) // 3 + 14] ^= 0xFF
    (folder / "a").write_bytes(wrong)
    (folder / "b").write_bytes(numbers(3, 5) + frame_one(b"\xff\xff") + numbers(5, 6))
    (folder / "c").write_bytes(numbers(6, 8) + numbers(8, 9)[:-3])
    return folder


SCHEMA = pa.schema([("x", pa.int64())])


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_failfast_names_file_and_place(tmp_path: Path, name: str) -> None:
    folder = broken_folder(tmp_path / "data")
    with pytest.raises(DataError, match=f"File: {folder}/{name}") as caught:
        rows_of(folder / name, SCHEMA)
    assert "Fix: " in str(caught.value)


def test_dropmalformed_leaves_out_what_is_broken(tmp_path: Path) -> None:
    folder = broken_folder(tmp_path / "data")
    assert xs(rows_of(folder, SCHEMA, mode="DROPMALFORMED")) == [0, 2, 3, 4, 5, 6, 7]
    assert xs(rows_of(folder, mode="DROPMALFORMED")) == [0, 2, 3, 4, 5, 6, 7], (
        "inference passes them over too"
    )


def test_permissive_keeps_what_is_broken_in_its_place(tmp_path: Path) -> None:
    folder = broken_folder(tmp_path / "data")
    schema = pa.schema([("_corrupt_record", pa.binary()), ("x", pa.int64())])
    rows = rows_of(folder, schema, mode="PERMISSIVE")
    assert [row["x"] for row in rows] == [0, None, 2, 3, 4, None, 5, 6, 7, None]
    assert [row["_corrupt_record"] is not None for row in rows] == [row["x"] is None for row in rows]
    assert rows[5]["_corrupt_record"] == b"\xff\xff"
    assert rows[9]["_corrupt_record"] == numbers(8, 9)[:-3]
    assert len(rows_of(folder, SCHEMA, mode="PERMISSIVE")) == len(rows), "also without the column"
    other = pa.schema([("bad", pa.binary()), ("x", pa.int64())])
    named = rows_of(folder, other, mode="PERMISSIVE", columnNameOfCorruptRecord="bad")
    assert [row["bad"] for row in named] == [row["_corrupt_record"] for row in rows]


def test_corrupt_files_are_ignored_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = broken_folder(tmp_path / "data")
    (folder / "d").write_bytes(numbers(9, 12))
    assert set(xs(rows_of(folder, SCHEMA, ignoreCorruptFiles="true"))) >= {6, 7, 9, 10, 11}


def test_a_promise_of_two_gigabytes_is_refused(tmp_path: Path) -> None:
    head = struct.pack("<Q", 2 << 30)
    (tmp_path / "x").write_bytes(
        numbers(0, 2) + head + struct.pack("<I", masked(google_crc32c.value(head))) + b"..."
    )
    with pytest.raises(DataError, match="maxRecordBytes"):
        rows_of(tmp_path, SCHEMA)
    assert xs(rows_of(tmp_path, SCHEMA, mode="DROPMALFORMED")) == [0, 1]
    with pytest.raises(DataError, match="maxRecordBytes=5"):
        rows_of(tmp_path, SCHEMA, maxRecordBytes="5")


def test_a_schema_is_inferred_from_first_to_last_file(tmp_path: Path) -> None:
    for place in range(40):
        columns = {"x": [place]} if place < 39 else {"x": [0.5], "y": ["late"]}
        (tmp_path / f"{place:02d}").write_bytes(file_of(pa.table(columns)))
    options = parse_options({"path": str(tmp_path)})
    assert infer_schema(find_files(options), options) == pa.schema([("x", pa.float64()), ("y", pa.string())])


def test_the_sample_can_be_made_larger(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(numbers(0, 3000) + file_of(pa.table({"x": ["text"]})))

    def inferred(**more: str) -> Any:
        options = parse_options({"path": str(tmp_path), **more})
        return infer_schema(find_files(options), options).field("x").type

    assert inferred() == pa.int64()
    assert inferred(inferRecords="5000") == pa.string()
    assert inferred(samplingRatio="1.0") == pa.string()
    with pytest.raises(DataError, match="Column 'x'"):
        rows_of(tmp_path)
    assert len(rows_of(tmp_path, samplingRatio="1.0")) == 3001


def test_nothing_to_infer_from_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ConfigError, match="No schema could be inferred"):
        rows_of(tmp_path)
    assert rows_of(tmp_path, SCHEMA) == []


def test_a_new_codec_is_one_entry_of_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flipped:
        """Each byte with all bits flipped: as good a compression as any for a test."""

        fault = ""

        def __init__(self, raw: Any, level: int = 0) -> None:
            self._raw = raw

        def read(self, size: int) -> bytes:
            return bytes(byte ^ 0xFF for byte in self._raw.read(size))

        def write(self, data: Any) -> None:
            self._raw.write(bytes(byte ^ 0xFF for byte in bytes(data)))

        def finish(self) -> None:
            pass

    monkeypatch.setitem(CODECS, "flip", Codec(endings=("flip",), reading=Flipped, writing=Flipped))
    codec = parse_options({"compression": "FLIP"}).compression
    assert codec is CODECS["flip"]
    path = tmp_path / f"x{codec.suffix}"
    with writing(str(path), codec) as out:
        out.write(frame_one(b"first") + frame_one(b"second"))
    assert [row["byteArray"] for row in rows_of(path, recordType="ByteArray")] == [b"first", b"second"]
    assert b"first" not in path.read_bytes()


def test_an_unknown_codec_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ConfigError, match=f"one of {', '.join(CODECS)}; .* Received: codec='lz4'"):
        parse_options({"codec": "lz4"})
