"""Files of one format into another: csv, parquet, json lines, tfrecord, and from idx, as MNIST comes.

A batch at a time, through the storage layer, without Spark. The target appears when it is complete.
"""

import gzip
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa

from emberflow import storage
from emberflow.errors import ConfigError, DataError, StorageError
from emberflow.tfrecord.codec.encode import encode
from emberflow.tfrecord.codec.feature_columns import columns_of
from emberflow.tfrecord.options import Options, parse_options
from emberflow.tfrecord.paths import find_files, split_files
from emberflow.tfrecord.reading import infer_schema, make_plan, read_parts
from emberflow.tfrecord.record_files import compression_of, writing

Format = Literal["csv", "parquet", "json", "tfrecord", "idx"]
Tell = Callable[[int, int | None], None]
"""Called with the rows done and, where it is known, all rows."""

_ENDINGS: dict[str, Format] = {
    "csv": "csv",
    "parquet": "parquet",
    "json": "json",
    "jsonl": "json",
    "tfrecord": "tfrecord",
    "tfrecords": "tfrecord",
    "ubyte": "idx",
    "idx": "idx",
}
_ROWS = 4096
_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What is read: a schema, batches of it, and how many rows there are where that is known."""

    schema: Any
    batches: Iterator[Any]
    total: int | None = None


def format_of(path: str, asked: str | None = None) -> Format:
    """Return a file's format: as asked, else by its name.

    >>> format_of("train-images-idx3-ubyte.gz"), format_of("s3://b/x.tfrecord.gz")
    ('idx', 'tfrecord')
    """
    name = path.rstrip("/").rpartition("/")[2].lower()
    words = name.replace("-", ".").split(".")
    found = _ENDINGS.get(asked.lower()) if asked else None
    for word in [] if asked else reversed(words):
        found = found or _ENDINGS.get(word)
    if found is None:
        raise ConfigError(
            f"Expected csv, parquet, json, tfrecord or idx. Received: {asked or path!r}.",
            fix="Say it: --from csv, --to tfrecord.",
        )
    return found


def convert_file(
    target: str, *, to: Format, rows: Rows, tell: Tell, options: dict[str, str] | None = None
) -> int:
    """Write rows to a file of another format; return how many there were."""
    if storage.exists(target):
        raise StorageError(
            f"Expected nothing at the target. Received: OUT={target!r}, which exists.",
            fix="Choose another name, or delete it first.",
        )
    if to == "idx":
        raise ConfigError(
            f"idx is read, not written. Received: OUT={target!r}.", fix="Use --to csv or --to tfrecord."
        )
    name = target.rstrip("/").rpartition("/")[2]
    # The ending stays at the end: it says how the file is compressed.
    aside = storage.sibling(target, f".{uuid.uuid4().hex}.{name}")
    done = 0
    try:
        with _SINKS[to](aside, rows.schema, parse_options(options or {})) as sink:
            for batch in rows.batches:
                sink.write(batch)
                done += batch.num_rows
                tell(done, rows.total)
        storage.publish(aside, target)
    except BaseException:
        storage.delete(aside)
        raise
    return done


def read_rows(
    path: str, kind: Format, *, labels: str | None = None, options: dict[str, str] | None = None
) -> Rows:
    """Open a file or folder of any format."""
    if kind == "idx":
        return _read_idx(path, labels)
    if kind == "tfrecord":
        parsed = parse_options({"path": path, **(options or {})})
        files = find_files(parsed)
        schema = infer_schema(files, parsed)
        plan = make_plan(schema, parsed, [])
        batches = (b for parts in split_files(files, parsed) for b in read_parts(parts, plan, parsed))
        return Rows(schema=schema, batches=batches)
    import pyarrow.dataset as pads

    fs, inside = storage.file_system(path)
    dataset = pads.dataset(inside, format=kind, filesystem=fs)
    total = dataset.count_rows() if kind == "parquet" else None
    return Rows(schema=dataset.schema, batches=dataset.to_batches(batch_size=_ROWS), total=total)


def _read_idx(path: str, labels: str | None) -> Rows:
    """Read images, and labels where they are given or stand beside them under MNIST's names."""
    guess = path.replace("images-idx3", "labels-idx1")
    if labels is None and guess != path and storage.exists(guess):
        labels = guess
    images = read_idx(path)
    flat = images.reshape(len(images), -1)
    name = "image" if images.ndim > 1 else "value"
    kind = pa.int64() if np.issubdtype(images.dtype, np.integer) else pa.float32()
    fields = [pa.field(name, pa.list_(kind, flat.shape[1]) if images.ndim > 1 else kind)]
    answers = read_idx(labels) if labels is not None else None
    if answers is not None:
        fields.insert(0, pa.field("label", pa.int64()))
        if len(answers) != len(images):
            raise DataError(
                f"Expected a label for each image. Received: {len(answers)} labels, {len(images)} images.",
                fix="Give the labels that belong to these images: --labels FILE.",
            )
    schema = pa.schema(fields)

    def batches() -> Iterator[Any]:
        for start in range(0, len(images), _ROWS):
            part = flat[start : start + _ROWS].astype(kind.to_pandas_dtype())
            values = pa.array(part.reshape(-1))
            column = pa.FixedSizeListArray.from_arrays(values, flat.shape[1]) if images.ndim > 1 else values
            arrays = (
                [column]
                if answers is None
                else [pa.array(answers[start : start + _ROWS].astype(np.int64)), column]
            )
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return Rows(schema=schema, batches=batches(), total=len(images))


def read_idx(path: str) -> Any:
    """Return the array of an idx file, gzipped or not."""
    data = storage.read_bytes(path)
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    if len(data) < 4 or data[:2] != b"\x00\x00" or data[2] not in _IDX_TYPES:
        raise DataError(
            f"Expected an idx file. Received: {path!r}, which starts with {data[:4]!r}.",
            fix="Name the format of the file: --from csv, parquet, json or tfrecord.",
        )
    shape = np.frombuffer(data, ">u4", count=data[3], offset=4).astype(np.int64)
    values = np.frombuffer(data, _IDX_TYPES[data[2]], offset=4 + 4 * data[3])
    if len(values) != shape.prod():
        raise DataError(
            f"The idx file is cut short. Received: {len(values)} of {shape.prod()} values.",
            fix="Fetch it again.",
        )
    return values.reshape(shape)


class _Sink(AbstractContextManager["_Sink"]):
    """Something that takes batches and is complete at the end of its block."""

    def __init__(self, path: str, schema: Any, options: Options) -> None:
        self._holding = ExitStack()
        self._options = options
        try:
            self._open(path, schema)
        except BaseException:
            self._holding.close()
            raise

    def _open(self, path: str, schema: Any) -> None:
        raise NotImplementedError

    def write(self, batch: Any) -> None:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        self._holding.close()

    def _file(self, path: str) -> IO[Any]:
        return self._holding.enter_context(storage.open_file(path, "wb"))


class _Csv(_Sink):
    def _open(self, path: str, schema: Any) -> None:
        from pyarrow import csv

        self._writer = self._holding.enter_context(csv.CSVWriter(self._file(path), _flat_schema(schema)))

    def write(self, batch: Any) -> None:
        self._writer.write_batch(_flat(batch))


class _Parquet(_Sink):
    def _open(self, path: str, schema: Any) -> None:
        import pyarrow.parquet as pq

        self._writer = self._holding.enter_context(pq.ParquetWriter(self._file(path), schema))

    def write(self, batch: Any) -> None:
        self._writer.write_batch(batch)


class _Json(_Sink):
    def _open(self, path: str, schema: Any) -> None:
        binary = [field.name for field in schema if pa.types.is_binary(field.type)]
        if binary:
            raise ConfigError(f"json holds no bytes. Received: columns {binary}.", fix="Use --to parquet.")
        self._out = self._file(path)

    def write(self, batch: Any) -> None:
        lines = [json.dumps(row, default=str, ensure_ascii=False) for row in batch.to_pylist()]
        self._out.write("".join(line + "\n" for line in lines).encode())


class _TFRecord(_Sink):
    def _open(self, path: str, schema: Any) -> None:
        self._columns = columns_of(schema, self._options.record_type)
        compression = compression_of(path, self._options.compression)
        self._out = self._holding.enter_context(writing(path, compression, self._options.level))

    def write(self, batch: Any) -> None:
        for start in range(0, batch.num_rows, _ROWS):
            part = batch.slice(start, _ROWS)
            self._out.write(
                encode(part, self._columns, self._options.record_type, self._options.doubles).data
            )


_SINKS: dict[str, Callable[[str, Any, Options], _Sink]] = {
    "csv": _Csv,
    "parquet": _Parquet,
    "json": _Json,
    "tfrecord": _TFRecord,
}


def _flat_schema(schema: Any) -> Any:
    """Return the columns of a csv file: arrays of a fixed length become a column for each place."""
    fields = []
    for field in schema:
        if pa.types.is_fixed_size_list(field.type):
            names = [f"{field.name}{place}" for place in range(field.type.list_size)]
            fields += [pa.field(name, field.type.value_type) for name in names]
        elif pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            raise ConfigError(
                f"csv holds numbers and text only. Received: column {field.name!r} of type {field.type}.",
                fix="Use --to parquet or --to tfrecord.",
            )
        else:
            fields.append(field)
    return pa.schema(fields)


def _flat(batch: Any) -> Any:
    arrays = []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_fixed_size_list(field.type):
            matrix = np.asarray(array.flatten()).reshape(len(array), -1)
            arrays += [pa.array(np.ascontiguousarray(matrix[:, place])) for place in range(matrix.shape[1])]
        else:
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=_flat_schema(batch.schema))
