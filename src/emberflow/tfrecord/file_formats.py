"""The file formats that `emberflow convert` reads and writes.

A new format is one entry of `FORMATS`: the endings of its files, its reader, and its writer if it has one.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa

from emberflow import storage
from emberflow.errors import ConfigError
from emberflow.tfrecord.codec.encode import encode
from emberflow.tfrecord.codec.feature_columns import columns_of
from emberflow.tfrecord.compression import codec_of
from emberflow.tfrecord.idx_files import find_labels, idx_batches
from emberflow.tfrecord.input_files import find_files, split_files
from emberflow.tfrecord.options import Options, parse_options
from emberflow.tfrecord.part_reader import infer_schema, make_plan, read_parts
from emberflow.tfrecord.record_files import writing

_BATCH_ROWS = 4096  # more rows would not stay in the processor's cache while they are encoded


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of a file: the schema, the batches, and the number of rows where it is known."""

    schema: Any
    batches: Iterator[Any]
    total: int | None = None


Reader = Callable[[str, str | None, Mapping[str, str]], Rows]


def _dataset_reader(name: str, *, has_count: bool = False) -> Reader:
    """Return the reader of a format that pyarrow reads itself; `has_count`: its files store the number of rows."""

    def read(path: str, labels: str | None, options: Mapping[str, str]) -> Rows:  # noqa: ARG001 - a reader's signature
        import pyarrow.dataset as pads

        fs, inside = storage.file_system(path)
        dataset = pads.dataset(inside, format=name, filesystem=fs)
        total = dataset.count_rows() if has_count else None
        return Rows(schema=dataset.schema, batches=dataset.to_batches(batch_size=_BATCH_ROWS), total=total)

    return read


def _read_idx(path: str, labels: str | None, options: Mapping[str, str]) -> Rows:  # noqa: ARG001
    schema, batches, total = idx_batches(path, labels or find_labels(path), _BATCH_ROWS)
    return Rows(schema=schema, batches=batches, total=total)


def _read_tfrecord(path: str, labels: str | None, options: Mapping[str, str]) -> Rows:  # noqa: ARG001
    parsed = parse_options({"path": path, **options})
    files = find_files(parsed)
    schema = infer_schema(files, parsed)
    plan = make_plan(schema, parsed, [])
    batches = (b for parts in split_files(files, parsed) for b in read_parts(parts, plan, parsed))
    return Rows(schema=schema, batches=batches)


class FileWriter(AbstractContextManager["FileWriter"]):
    """Writes batches to a file, which is complete at the end of the block."""

    def __init__(self, path: str, schema: Any, options: Options) -> None:
        self._resources = ExitStack()
        self._options = options
        try:
            self._open(path, schema)
        except BaseException:
            self._resources.close()
            raise

    def _open(self, path: str, schema: Any) -> None:
        raise NotImplementedError

    def write(self, batch: Any) -> None:
        """Write the rows of a batch."""
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _file(self, path: str) -> IO[Any]:
        return self._resources.enter_context(storage.open_file(path, "wb"))


class _CsvWriter(FileWriter):
    def _open(self, path: str, schema: Any) -> None:
        from pyarrow import csv

        self._writer = self._resources.enter_context(csv.CSVWriter(self._file(path), _flat_schema(schema)))

    def write(self, batch: Any) -> None:
        self._writer.write_batch(_flat(batch))


class _ParquetWriter(FileWriter):
    def _open(self, path: str, schema: Any) -> None:
        import pyarrow.parquet as pq

        self._writer = self._resources.enter_context(pq.ParquetWriter(self._file(path), schema))

    def write(self, batch: Any) -> None:
        self._writer.write_batch(batch)


class _JsonWriter(FileWriter):
    def _open(self, path: str, schema: Any) -> None:
        binary = [field.name for field in schema if pa.types.is_binary(field.type)]
        if binary:
            raise ConfigError(f"json cannot hold bytes. Received: columns {binary}.", fix="Use --to parquet.")
        self._out = self._file(path)

    def write(self, batch: Any) -> None:
        lines = [json.dumps(row, default=str, ensure_ascii=False) for row in batch.to_pylist()]
        self._out.write("".join(line + "\n" for line in lines).encode())


class _TFRecordWriter(FileWriter):
    def _open(self, path: str, schema: Any) -> None:
        self._columns = columns_of(schema, self._options.record_type)
        codec = codec_of(path, self._options.compression)
        self._out = self._resources.enter_context(writing(path, codec, self._options.level))

    def write(self, batch: Any) -> None:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            part = batch.slice(start, _BATCH_ROWS)
            self._out.write(
                encode(part, self._columns, self._options.record_type, self._options.doubles).data
            )


def _flat_schema(schema: Any) -> Any:
    """Return the columns of a csv file: arrays of a fixed length become one column per element."""
    fields = []
    for field in schema:
        if pa.types.is_fixed_size_list(field.type):
            names = [f"{field.name}{place}" for place in range(field.type.list_size)]
            fields += [pa.field(name, field.type.value_type) for name in names]
        elif pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            raise ConfigError(
                f"csv can hold numbers and text only. Received: column {field.name!r} of type {field.type}.",
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


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """One format.

    Attributes:
        endings: Words of a file's name that imply the format.
        read: Opens a file or folder, given the path, the path of labels (None: look for them), and the options.
        writer: Opens a file for writing, given the path, the schema and the options; None where it is not written.
    """

    endings: tuple[str, ...]
    read: Reader
    writer: Callable[[str, Any, Options], FileWriter] | None = None


FORMATS = {
    "csv": FileFormat(endings=("csv",), read=_dataset_reader("csv"), writer=_CsvWriter),
    "parquet": FileFormat(
        endings=("parquet",), read=_dataset_reader("parquet", has_count=True), writer=_ParquetWriter
    ),
    "json": FileFormat(endings=("json", "jsonl"), read=_dataset_reader("json"), writer=_JsonWriter),
    "tfrecord": FileFormat(endings=("tfrecord", "tfrecords"), read=_read_tfrecord, writer=_TFRecordWriter),
    "idx": FileFormat(endings=("idx", "ubyte"), read=_read_idx),
}
