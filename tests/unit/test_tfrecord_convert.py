"""`emberflow convert` between all formats, on local disk and elsewhere."""

import gzip
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from emberflow import storage
from emberflow.cli.convert import run_convert
from emberflow.errors import ConfigError
from emberflow.tfrecord import file_formats
from emberflow.tfrecord.convert import format_of
from emberflow.tfrecord.file_formats import FORMATS, FileFormat
from tests.unit.test_tfrecord_reading import rows_of

ROWS = [{"id": number, "name": f"né {number}", "score": number / 4} for number in range(5000)]


def idx(path: Path, values: list[int], *shape: int) -> None:
    head = bytes([0, 0, 8, len(shape)]) + b"".join(struct.pack(">I", size) for size in shape)
    path.write_bytes(gzip.compress(head + bytes(values)))


@pytest.mark.parametrize("middle", ["x.csv", "x.parquet", "x.jsonl", "x.tfrecord", "x.tfrecord.gz"])
def test_there_and_back(tmp_path: Path, middle: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, last = (str(tmp_path / name) for name in ("a.parquet", middle, "z.parquet"))
    pq.write_table(pa.Table.from_pylist(ROWS), first)
    assert run_convert(first, second) == 0
    assert run_convert(second, last) == 0
    assert pq.read_table(last).to_pylist() == ROWS
    assert "5,000 rows written to" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["a.parquet", middle, "z.parquet"])


def test_other_file_systems(tmp_path: Path) -> None:
    source = str(tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS), source)
    assert run_convert(source, "memory://convert/x.tfrecord.gz", options=["compressionLevel=1"]) == 0
    assert storage.read_bytes("memory://convert/x.tfrecord.gz")[:2] == b"\x1f\x8b"
    assert run_convert("memory://convert/x.tfrecord.gz", "memory://convert/y.csv") == 0
    assert storage.read_bytes("memory://convert/y.csv").splitlines()[1].decode() == '0,"né 0",0'


@pytest.mark.parametrize("named", [True, False])
def test_mnist_files_to_tfrecord_and_csv(tmp_path: Path, named: bool) -> None:
    images, labels = tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "train-labels-idx1-ubyte.gz"
    idx(images, list(range(24)), 4, 2, 3)
    idx(labels, [7, 2, 1, 0], 4)
    given = str(labels) if named else None
    assert run_convert(str(images), str(tmp_path / "x.tfrecord"), labels=given) == 0
    assert rows_of(tmp_path / "x.tfrecord") == [
        {"image": list(range(6 * row, 6 * row + 6)), "label": label} for row, label in enumerate([7, 2, 1, 0])
    ]
    assert run_convert(str(images), str(tmp_path / "x.csv"), labels=given) == 0
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert lines[:2] == ['"label","image0","image1","image2","image3","image4","image5"', "7,0,1,2,3,4,5"]


def test_json_lines(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": [1, 2], "b": "é"}\n{"a": [], "b": null}\n')
    assert run_convert(str(tmp_path / "x.json"), str(tmp_path / "x.tfrecord")) == 0
    assert run_convert(str(tmp_path / "x.tfrecord"), str(tmp_path / "y.jsonl")) == 0
    lines = [json.loads(line) for line in (tmp_path / "y.jsonl").read_text().splitlines()]
    assert lines == [{"a": [1, 2], "b": "é"}, {"a": [], "b": None}]


def test_what_goes_wrong_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def error(source: str, target: str, code: int = 2, **more: Any) -> str:
        assert run_convert(str(tmp_path / source), str(tmp_path / target), **more) == code
        return capsys.readouterr().err

    pq.write_table(pa.table({"l": [[1]], "b": [b"\xff"]}), tmp_path / "a.parquet")
    idx(tmp_path / "short-idx", [1, 2], 3)
    before = set(tmp_path.iterdir())
    assert "csv can hold numbers and text only" in error("a.parquet", "x.csv")
    assert "json cannot hold bytes" in error("a.parquet", "x.json")
    assert "which exists" in error("a.parquet", "a.parquet")
    assert "--from csv" in error("a.unknown", "x.csv")
    assert "idx is read, not written" in error("a.parquet", "x.idx")
    assert "cut short" in error("short-idx", "x.csv", code=1)
    assert "Expected an idx file" in error("a.parquet", "x.csv", code=1, kind="idx")
    assert "name=value" in error("a.parquet", "x.tfrecord", options=["gzip"])
    assert set(tmp_path.iterdir()) == before


def test_the_command_as_a_person_types_it(tmp_path: Path) -> None:
    def convert(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "emberflow.cli.main", "convert", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    idx(tmp_path / "train-images-idx3-ubyte.gz", list(range(24)), 4, 2, 3)
    idx(tmp_path / "train-labels-idx1-ubyte.gz", [7, 2, 1, 0], 4)
    assert "4 rows written to digits.tfrecord" in convert("train-images-idx3-ubyte.gz", "digits.tfrecord")
    convert("train-images-idx3-ubyte.gz", "digits.csv", "--labels", "train-labels-idx1-ubyte.gz")
    convert("digits.csv", "flat.tfrecord.gz", "--option", "compressionLevel=9")
    convert("flat.tfrecord.gz", "flat.jsonl")
    convert("flat.jsonl", "flat.parquet")
    convert("digits.tfrecord", "digits.jsonl")
    flat = pq.read_table(tmp_path / "flat.parquet").to_pylist()
    digits = [json.loads(line) for line in (tmp_path / "digits.jsonl").read_text().splitlines()]
    assert [[row[f"image{at}"] for at in range(6)] for row in flat] == [row["image"] for row in digits]
    assert [row["label"] for row in flat] == [row["label"] for row in digits] == [7, 2, 1, 0]
    assert "--from csv" in convert("digits.unknown", "x.csv", code=2)
    assert "Missing argument" in convert("digits.csv", code=2)


def test_formats_are_known_by_name() -> None:
    assert [format_of(name) for name in ("a.csv.gz", "s3://b/c.parquet", "t10k-labels-idx1-ubyte")] == [
        "csv",
        "parquet",
        "idx",
    ]
    assert format_of("anything", "json") == "json"
    with pytest.raises(ConfigError, match=f"one of {', '.join(FORMATS)}. Received: 'x.unknown'"):
        format_of("x.unknown")


def test_a_new_format_is_one_entry_of_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orc.write_table(pa.Table.from_pylist(ROWS), str(tmp_path / "x.orc"))
    entry = FileFormat(endings=("orc",), read=file_formats._dataset_reader("orc", has_count=True))
    monkeypatch.setitem(FORMATS, "orc", entry)
    assert run_convert(str(tmp_path / "x.orc"), str(tmp_path / "x.tfrecord")) == 0
    assert rows_of(tmp_path / "x.tfrecord") == ROWS
