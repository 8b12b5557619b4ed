"""Parquet as a file source."""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyarrow.fs import FSSpecHandler, PyFileSystem

from emberflow import storage
from emberflow._feed.file_source import Fragment
from emberflow._feed.source_errors import remedy_of
from emberflow.errors import ConfigError, StorageError

BATCH_BYTES = 8 << 20  # a batch is in memory several times while a row group is decoded
_MOST_ROWS = 1 << 16  # of a batch of very narrow rows


class Parquet:
    """Parquet files, read by the workers themselves.

    Example:
        >>> Parquet("/data/train", columns=["image", "label"], filters=[("label", "<", 5)])
        Parquet('/data/train', columns=['image', 'label'], filters=[('label', '<', 5)])

    Args:
        path: A file or a folder, on local disk or any file system that fsspec supports. Folders named
            ``column=value`` become columns; names that begin with ``_`` or ``.`` are skipped.
        columns: The columns to read; None for all.
        filters: The rows to keep: a pyarrow expression, tuples ``(column, op, value)`` that must all match,
            or a list of lists of tuples of which one must match. Row groups are skipped by their statistics.
    """

    def __init__(self, path: str, *, columns: Sequence[str] | None = None, filters: Any = None) -> None:
        if isinstance(columns, str):
            raise ConfigError(
                f"`columns` must be a list of names. Received: columns={columns!r}.",
                fix=f'Pass columns=["{columns}"].',
            )
        self.path = str(path)
        self.columns = None if columns is None else list(columns)
        self.filters = filters

    def __repr__(self) -> str:
        names = ("columns", "filters")
        options = [f"{name}={getattr(self, name)!r}" for name in names if getattr(self, name) is not None]
        return f"Parquet({', '.join([repr(self.path), *options])})"

    def with_resolved_path(self, resolve: Callable[[str], str]) -> "Parquet":
        """Return the same source with the URL that its path means."""
        return Parquet(resolve(self.path), columns=self.columns, filters=self.filters)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "columns": self.columns, "filters": self.filters}  # no open files

    @property
    def schema(self) -> Any:
        """The columns of the rows, as pyarrow's schema."""
        return pa.schema([self._dataset.schema.field(name) for name in self._names])

    def fragments(self) -> list[Fragment]:
        """Return one fragment per row group, by path and then in file order."""
        self._names  # noqa: B018 - a wrong name fails here, on the driver
        schema, found = self._dataset.schema, []
        with self._translated():
            for path, file in sorted(self._files.items()):
                for group in file.split_by_row_group(self._expression, schema=schema):
                    info = group.row_groups[0]
                    found.append(
                        Fragment(path=path, part=info.id, rows=info.num_rows, bytes=info.total_byte_size)
                    )
        return found

    def read(self, fragment: Fragment, start: int, stop: int | None) -> Iterator[Any]:
        """Yield rows of one row group."""
        with self._translated(fragment.path):
            yield from self._rows(fragment, start, stop)

    def _rows(self, fragment: Fragment, start: int, stop: int | None) -> Iterator[Any]:
        group = self._file(fragment.path).subset(row_group_ids=[fragment.part])
        rows = group.row_groups[0].num_rows
        if rows != fragment.rows:
            raise StorageError(
                f"Files must not change while a run reads them. Received: path={fragment.path!r} with {rows} "
                f"rows in row group {fragment.part}, and {fragment.rows} when the run began.",
                fix="Write new files beside the old ones, or start the run when they are complete.",
            )
        size = max(1, fragment.bytes // max(1, rows))
        options = {
            "schema": self._dataset.schema,
            "batch_size": max(1, min(_MOST_ROWS, BATCH_BYTES // size)),
            "batch_readahead": 2,
            "fragment_readahead": 1,
        }
        if start == 0 and (stop is None or stop == rows):
            yield from _filled(group.to_batches(columns=self._names, filter=self._expression, **options))
        else:
            # The range counts rows before the filter; two ranks that share a group both read all of it.
            needed = self._names if self._expression is None else None
            yield from _filled(self._kept(_between(group.to_batches(columns=needed, **options), start, stop)))

    def _kept(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            kept = batch if self._expression is None else batch.filter(self._expression)
            yield kept.select(self._names)

    @cached_property
    def _dataset(self) -> Any:
        path, filesystem = self.path, None
        if not storage.is_local(path):
            fs, path = storage.file_system(path)
            filesystem = PyFileSystem(FSSpecHandler(fs))
        else:
            path = path.removeprefix("file://").removeprefix("file:")
        with self._translated():
            return pads.dataset(path, format="parquet", partitioning="hive", filesystem=filesystem)

    @contextmanager
    def _translated(self, path: str | None = None) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise StorageError(
                "Parquet files that can be read are needed. "
                f"Received: path={path or self.path!r}, {type(error).__name__}: {error}.",
                fix=remedy_of(error),
            ) from error

    def _file(self, path: str) -> Any:
        if path not in self._files:
            raise FileNotFoundError(
                errno.ENOENT, "the driver has listed this file, but it is not on this host", path
            )
        return self._files[path]

    @cached_property
    def _files(self) -> dict[str, Any]:
        return {file.path: file for file in self._dataset.get_fragments(filter=self._expression)}

    @cached_property
    def _expression(self) -> Any:
        if self.filters is None or isinstance(self.filters, pc.Expression):
            return self.filters
        try:
            return pq.filters_to_expression(self.filters)
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"`filters` must be tuples (column, op, value) or an expression. Received: {self.filters!r}.",
                fix='Pass filters=[("label", "<", 5)].',
            ) from error

    @cached_property
    def _names(self) -> list[str]:
        names: list[str] = self._dataset.schema.names
        missing = [name for name in self.columns or () if name not in names]
        if missing:
            raise ConfigError(
                f"`columns` must name columns of the files. Received: {missing}; "
                f"there are: {', '.join(names)}.",
                fix="Correct the names in columns=.",
            )
        return names if self.columns is None else self.columns


def _filled(batches: Iterator[Any]) -> Iterator[Any]:
    return (batch for batch in batches if batch.num_rows)


def _between(batches: Iterator[Any], start: int, stop: int | None) -> Iterator[Any]:
    """Yield the rows from `start` to `stop`."""
    seen = 0
    for batch in batches:
        first = max(start - seen, 0)
        last = batch.num_rows if stop is None else min(stop - seen, batch.num_rows)
        seen += batch.num_rows
        if first < last:
            yield batch.slice(first, last - first)
        if stop is not None and seen >= stop:
            return
