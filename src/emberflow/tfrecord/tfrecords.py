"""TFRecord as a file source of ``ef.run``: each rank reads and parses its own part of the files."""

import mmap
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from emberflow import storage
from emberflow._feed.file_source import Fragment
from emberflow.errors import ConfigError, DataError
from emberflow.tfrecord.codec.feature_columns import columns_of
from emberflow.tfrecord.codec.record_frames import HEAD, TAIL, Chunk, read_chunks
from emberflow.tfrecord.compression import codec_of
from emberflow.tfrecord.input_files import InputFile, find_files, split_list
from emberflow.tfrecord.options import parse_options
from emberflow.tfrecord.part_reader import infer_schema, make_plan, read_chunk
from emberflow.tfrecord.record_files import read_file

_PIECE = 16 << 20
"""Files are listed in pieces of about this size, so that ranks can share a file."""
_COUNTED = 4 << 30
"""Up to this many bytes on local disk the records are counted before training starts."""
_TYPES: dict[str, Any] = {
    "bool": pa.bool_(), "boolean": pa.bool_(), "int32": pa.int32(), "int": pa.int32(), "int64": pa.int64(),
    "long": pa.int64(), "float": pa.float32(), "float32": pa.float32(), "double": pa.float64(),
    "float64": pa.float64(), "string": pa.string(), "bytes": pa.binary(), "binary": pa.binary(),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _FeatureType:
    """A declared feature: its type, its number of values (None: any), the default for a missing one."""

    type: Any
    count: int | None = None
    default: Any = None


class TFRecords:
    """TFRecord files, read by the workers themselves.

    Example:
        >>> TFRecords("/data/train", features={"image": "float[784]", "label": "int64"})
        TFRecords('/data/train', features={'image': 'float[784]', 'label': 'int64'})

    Args:
        path: A file, folder, pattern or comma list, on local disk or any file system that fsspec supports.
        features: The features to read. None: all, with types inferred from the first records of the files. A list of
            names: only these. A mapping also declares the types: "int64", "float", "double", "bool", "string",
            "bytes"; "float[]" for an array and "float[784]" for one of fixed length; a pyarrow type; or
            TensorFlow's own ``tf.io.FixedLenFeature`` and ``tf.io.VarLenFeature``.
        record_type: "Example" or "SequenceExample".
        options: Options of the data source, such as ``{"compression": "gzip", "verifyCrc": False}``.
    """

    def __init__(
        self,
        path: str,
        *,
        features: Sequence[str] | Mapping[str, Any] | None = None,
        record_type: str = "Example",
        options: Mapping[str, object] | None = None,
    ) -> None:
        if isinstance(features, str):
            raise ConfigError(
                f"`features` must be a list or a mapping. Received: features={features!r}.",
                fix=f'Pass features=["{features}"].',
            )
        self.path = str(path)
        self.features = features
        given = {key: str(value) for key, value in (options or {}).items()}
        self._options = parse_options({"path": self.path, "recordType": record_type, **given})
        self._shapes = _shapes_of(features) if isinstance(features, Mapping) else {}

    def __repr__(self) -> str:
        shown = f", features={self.features!r}" if self.features is not None else ""
        return f"TFRecords({self.path!r}{shown})"

    def with_resolved_path(self, resolve: Callable[[str], str]) -> "TFRecords":
        """Return the same source with the URLs that its paths mean."""
        resolved = object.__new__(type(self))  # not copy.copy, which reads the files: see `__getstate__`
        resolved.__dict__.update(self.__dict__)
        paths = tuple(resolve(path) for path in split_list(self.path))
        resolved.path = ",".join(paths)
        resolved._options = replace(self._options, paths=paths)
        resolved.__dict__.pop("_schema", None)
        return resolved

    def __getstate__(self) -> dict[str, Any]:
        _ = self._schema  # inferred once, on the driver: all ranks read the same columns
        return self.__dict__

    @property
    def schema(self) -> Any:
        """The columns of the rows, as pyarrow's schema."""
        return self._schema

    def fragments(self) -> list[Fragment]:
        """Return pieces of the files with their records counted, or with their bytes where counting is expensive."""
        files = [file for file in find_files(self._options) if file.size]
        _ = self._schema
        if all(self._may_count(file) for file in files) and sum(file.size for file in files) <= _COUNTED:
            return [piece for file in files for piece in _counted(file)]
        return [piece for file in files for piece in self._estimated(file)]

    def read(self, fragment: Fragment, start: int, stop: int | None) -> Iterator[Any]:
        """Yield rows of one piece."""
        plan = make_plan(self._schema, self._options, [])
        seen = 0
        for chunk in self._chunks(fragment):
            first = max(start - seen, 0)
            last = len(chunk.starts) if stop is None else min(stop - seen, len(chunk.starts))
            seen += len(chunk.starts)
            if first < last:
                batch = read_chunk(
                    _slice(chunk, first, last), InputFile(path=fragment.path, size=0), plan, self._options
                )
                yield self._shaped(batch)
            if chunk.broken is not None and self._options.mode == "FAILFAST":
                raise DataError(f"{chunk.broken.problem}\nFile: {fragment.path}", fix=chunk.broken.fix)
            if stop is not None and seen >= stop:
                return

    def _may_count(self, file: InputFile) -> bool:
        return storage.is_local(file.path) and codec_of(file.path, self._options.compression).is_splittable

    def _estimated(self, file: InputFile) -> list[Fragment]:
        if not codec_of(file.path, self._options.compression).is_splittable or not self._options.verify:
            return [Fragment(path=file.path, bytes=file.size)]
        count = max(1, file.size // _PIECE)
        edges = [file.size * place // count for place in range(count + 1)]
        return [Fragment(path=file.path, part=a, bytes=b - a) for a, b in pairwise(edges)]

    def _chunks(self, fragment: Fragment) -> Iterator[Chunk]:
        codec = codec_of(fragment.path, self._options.compression)
        stop = fragment.part + fragment.bytes
        if fragment.rows is not None:  # it starts and ends at a record
            with storage.open_file(fragment.path) as raw:
                raw.seek(fragment.part)
                yield from read_chunks(raw, self._options.rules, fragment.part, stop)
        elif not codec.is_splittable or not self._options.verify:
            yield from read_file(fragment.path, codec, self._options.rules)
        else:
            yield from read_file(fragment.path, codec, self._options.rules, fragment.part, stop)

    @cached_property
    def _schema(self) -> Any:
        if self._shapes:
            schema = pa.schema([pa.field(name, shape.type) for name, shape in self._shapes.items()])
            columns_of(schema, self._options.record_type)
            return schema
        schema = infer_schema(find_files(self._options), self._options)
        if self.features is None:
            return schema
        missing = [name for name in self.features if name not in schema.names]
        if missing:
            raise ConfigError(
                f"`features` must name features of the files. Received: {missing}; there are: {schema.names}.",
                fix="Correct the names in features=, or declare their types in a mapping.",
            )
        return pa.schema([schema.field(name) for name in self.features])

    def _shaped(self, batch: Any) -> Any:
        """Fill in defaults, and turn arrays of a fixed length into fixed-size lists."""
        for place, (name, shape) in enumerate(self._shapes.items()):
            array = batch.column(place)
            if shape.default is not None and array.null_count:
                array = array.fill_null(pa.scalar(shape.default, array.type))
            if shape.count is not None:
                array = _fixed(array, name, shape.count)
            if array is not batch.column(place):
                batch = batch.set_column(place, name, array)
        return batch


def _slice(chunk: Chunk, first: int, last: int) -> Chunk:
    if first == 0 and last == len(chunk.starts):
        return chunk
    corrupt = chunk.corrupt[(chunk.corrupt >= first) & (chunk.corrupt < last)] - first
    return Chunk(
        data=chunk.data,
        starts=chunk.starts[first:last],
        ends=chunk.ends[first:last],
        corrupt=corrupt,
        offset=chunk.offset,
        end=chunk.end,
    )


def _counted(file: InputFile) -> Iterator[Fragment]:
    """Yield pieces of a local file with their number of records, by reading the lengths only."""
    length_at = struct.Struct("<Q").unpack_from
    with storage.open_file(file.path) as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as data:
        begin = at = rows = 0
        while at + HEAD + TAIL <= file.size:
            end = at + int(length_at(data, at)[0]) + HEAD + TAIL
            if end > file.size:
                break  # truncated, or not TFRecord: the rank that reads it raises the error
            at, rows = end, rows + 1
            if at - begin >= _PIECE:
                yield Fragment(path=file.path, part=begin, rows=rows, bytes=at - begin)
                begin, rows = at, 0
        rows += at < file.size  # counted, so that a rank reads it
        if rows:
            yield Fragment(path=file.path, part=begin, rows=rows, bytes=file.size - begin)


def _fixed(array: Any, name: str, count: int) -> Any:
    lengths = set(pc.list_value_length(array).unique().to_pylist())
    if lengths - {count}:
        raise DataError(
            f"Feature {name!r} must have {count} values in each record. Received: {sorted(map(str, lengths))}.",
            fix=f'Declare "{name}": "...[]" for arrays of any length.',
        )
    return pa.FixedSizeListArray.from_arrays(array.flatten(), count)


def _shapes_of(features: Mapping[str, Any]) -> dict[str, _FeatureType]:
    return {name: _shape_of(name, given) for name, given in features.items()}


def _shape_of(name: str, given: Any) -> _FeatureType:
    if isinstance(given, pa.DataType):
        return _FeatureType(type=given)
    if isinstance(given, str):
        leaf, bracket, rest = given.partition("[")
        if leaf in _TYPES and (not bracket or (rest[-1:] == "]" and (rest[:-1].isdigit() or rest == "]"))):
            kind = pa.list_(_TYPES[leaf]) if bracket else _TYPES[leaf]
            return _FeatureType(type=kind, count=int(rest[:-1]) if rest[:-1] else None)
    elif hasattr(given, "dtype"):
        return _from_tensorflow(given)
    raise ConfigError(
        "A feature's type must be a name, a pyarrow type, or a tf.io feature. "
        f"Received: features[{name!r}]={given!r}.",
        fix=f'Write "{name}": "float[784]", with one of {sorted(_TYPES)}.',
    )


def _from_tensorflow(given: Any) -> _FeatureType:
    """Read tf.io.FixedLenFeature or tf.io.VarLenFeature, without importing TensorFlow."""
    leaf = _TYPES["bytes" if given.dtype.name == "string" else given.dtype.name]
    if not hasattr(given, "shape"):
        return _FeatureType(type=pa.list_(leaf))
    count = 1
    for size in given.shape:
        count *= int(size)
    if not list(given.shape):
        return _FeatureType(type=leaf, default=given.default_value)
    return _FeatureType(type=pa.list_(leaf), count=count)
