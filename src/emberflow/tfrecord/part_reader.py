"""Parts of files to Arrow batches: decoding, broken records by the chosen mode, values from folder names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow.errors import ConfigError, DataError
from emberflow.tfrecord.codec.decode import Decoded, decode
from emberflow.tfrecord.codec.feature_columns import Column, columns_of, pack
from emberflow.tfrecord.codec.record_frames import Chunk
from emberflow.tfrecord.compression import codec_of
from emberflow.tfrecord.input_files import FilePart, InputFile
from emberflow.tfrecord.options import Options
from emberflow.tfrecord.record_files import read_file
from emberflow.tfrecord.schema_inference import infer

_FILES = 16
"""The number of files from which a schema is inferred without samplingRatio."""


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """The columns of a read, and where they come from.

    Attributes:
        schema: The Arrow schema of the batches.
        columns: The columns from the records.
        keys: The columns from folder names.
        corrupt: The column for broken records, or None.
    """

    schema: Any
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    corrupt: str | None


def make_plan(schema: Any, options: Options, keys: Sequence[str]) -> ReadPlan:
    """Divide the columns of a schema by where they come from."""
    corrupt = (
        options.corrupt_column if options.is_permissive and options.corrupt_column in schema.names else None
    )
    stored = [field for field in schema if field.name not in keys and field.name != corrupt]
    columns = pack(columns_of(pa.schema(stored), options.record_type), options.packed)
    if corrupt is not None and not pa.types.is_binary(schema.field(corrupt).type):
        raise ConfigError(
            f"The column of broken records must be binary. Received: {corrupt!r} as {schema.field(corrupt).type}.",
            fix=f"Put `{corrupt} binary` into the schema.",
        )
    return ReadPlan(
        schema=schema,
        columns=tuple(columns),
        keys=tuple(name for name in schema.names if name in keys),
        corrupt=corrupt,
    )


def read_parts(parts: Sequence[FilePart], plan: ReadPlan, options: Options) -> Iterator[Any]:
    """Yield the rows of some parts as record batches of the plan's schema."""
    for part in parts:
        path = part.file.path
        codec = codec_of(path, options.compression)
        try:
            for chunk in read_file(path, codec, options.rules, part.start, part.stop):
                batch = read_chunk(chunk, part.file, plan, options)
                if batch.num_rows:
                    yield batch
                if chunk.broken is not None and not _may_skip(options):
                    raise _located(chunk.broken, path)
        except DataError:
            if not options.ignore_corrupt_files:
                raise


def _may_skip(options: Options) -> bool:
    return options.ignore_corrupt_files or options.mode != "FAILFAST"


def read_chunk(chunk: Chunk, file: InputFile, plan: ReadPlan, options: Options) -> Any:
    """Return the rows of one chunk as a record batch; broken records by the chosen mode."""
    decoded = decode(chunk, plan.columns, options.record_type)
    broken = {int(row): _wrong_checksum(chunk, int(row)) for row in chunk.corrupt} | decoded.refused
    if broken and options.mode == "FAILFAST":
        row = min(broken)
        place = chunk.offset + int(chunk.starts[row])
        raise _located(broken[row], file.path, f", the record at byte {place}")
    if options.is_permissive and (broken or chunk.broken):
        return _with_broken(chunk, decoded, sorted(broken), file, plan)
    arrays = {column.name: array for column, array in zip(plan.columns, decoded.arrays, strict=True)}
    return _assemble(arrays, len(decoded.rows), file, plan, None)


def _with_broken(chunk: Chunk, decoded: Decoded, broken: list[int], file: InputFile, plan: ReadPlan) -> Any:
    """Return the rows with one row of nulls for each broken record, and one for a tail that cannot be read."""
    tail = 1 if chunk.broken is not None else 0
    rows = len(chunk.starts) + tail
    places = np.zeros(rows, np.int64)
    places[decoded.rows] = np.arange(len(decoded.rows))
    is_good = np.zeros(rows, bool)
    is_good[decoded.rows] = True
    index = pa.array(places, mask=~is_good)
    arrays = {
        column.name: array.take(index) for column, array in zip(plan.columns, decoded.arrays, strict=True)
    }
    content: list[bytes | None] = [None] * rows
    for row in broken:
        content[row] = chunk.payload(row)
    if tail:
        content[-1] = chunk.rest
    return _assemble(arrays, rows, file, plan, pa.array(content, pa.binary()))


def _assemble(arrays: dict[str, Any], rows: int, file: InputFile, plan: ReadPlan, corrupt: Any) -> Any:
    columns = []
    for field in plan.schema:
        if field.name in plan.keys:
            columns.append(_key_column(file, field, rows))
        elif field.name == plan.corrupt:
            columns.append(corrupt if corrupt is not None else pa.nulls(rows, field.type))
        else:
            columns.append(arrays[field.name])
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=plan.schema)


def _key_column(file: InputFile, field: Any, rows: int) -> Any:
    text = file.keys.get(field.name)
    try:
        value = pa.scalar(text, pa.string()).cast(field.type)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"Column {field.name!r} comes from a folder name. Received: {text!r}, which is not {field.type} "
            f"({error}).",
            fix=f"Make `{field.name}` a string in the schema.",
        ) from error
    return pa.repeat(value, rows)


def _wrong_checksum(chunk: Chunk, row: int) -> DataError:
    return DataError(
        f"The checksum of a record is wrong. Received: {int(chunk.ends[row] - chunk.starts[row])} bytes that "
        "differ from those that were written.",
        fix='Write the file again, or skip such records: .option("mode", "DROPMALFORMED").',
    )


def _located(error: DataError, path: str, place: str = "") -> DataError:
    return DataError(f"{error.problem}\nFile: {path}{place}", fix=error.fix)


def infer_schema(files: Sequence[InputFile], options: Options) -> Any:
    """Return the Arrow schema of the records, from a sample of them."""
    if options.record_type == "ByteArray":
        return infer([], "ByteArray")
    try:
        schema = infer(_sample(files, options), options.record_type, is_strict=options.mode == "FAILFAST")
    except DataError as error:
        raise DataError(f"No schema could be inferred. {error.problem}", fix=error.fix) from error
    if not len(schema):
        raise ConfigError(
            f"No schema could be inferred. Received: {len(files)} files without a record that has a feature.",
            fix="Pass the schema: spark.read.schema(...).",
        )
    fields = [field.with_type(pa.binary()) if field.name in options.packed else field for field in schema]
    return pa.schema(fields)


def _sample(files: Sequence[InputFile], options: Options) -> Iterator[bytes]:
    """Yield some records: of all files by a ratio, otherwise the first ones of evenly spaced files."""
    ratio = options.sampling_ratio
    files = [file for file in files if file.size]
    if ratio is None and len(files) > _FILES:
        files = [files[place * (len(files) - 1) // (_FILES - 1)] for place in range(_FILES)]
    most = None if ratio is not None else -(-options.infer_records // max(len(files), 1))
    for file in files:
        count = 0.0
        for payload in _payloads(file, options):
            if most is not None and count >= most:
                break
            before, count = count, count + (ratio or 1.0)
            if int(count) > int(before) or not before:
                yield payload


def _payloads(file: InputFile, options: Options) -> Iterator[bytes]:
    for chunk in read_file(file.path, codec_of(file.path, options.compression), options.rules):
        broken = set(chunk.corrupt.tolist())
        if (broken or chunk.broken is not None) and not _may_skip(options):
            error = chunk.broken or _wrong_checksum(chunk, min(broken))
            raise _located(error, file.path)
        yield from (chunk.payload(row) for row in range(len(chunk.starts)) if row not in broken)
