"""Files of one format into another, batch by batch, without Spark. The target appears when it is complete."""

import uuid
from collections.abc import Callable

from emberflow import storage
from emberflow.errors import ConfigError, StorageError
from emberflow.tfrecord.file_formats import FORMATS, Rows
from emberflow.tfrecord.options import parse_options

OnProgress = Callable[[int, int | None], None]
"""Called with the rows that are done and, where it is known, the number of all rows."""


def format_of(path: str, chosen: str | None = None) -> str:
    """Return the name of a file's format: the chosen one, otherwise by the words of the file's name.

    >>> format_of("train-images-idx3-ubyte.gz"), format_of("s3://b/x.tfrecord.gz")
    ('idx', 'tfrecord')
    """
    by_ending = {ending: name for name, each in FORMATS.items() for ending in each.endings}
    words = path.rstrip("/").rpartition("/")[2].lower().replace("-", ".").split(".")
    found = [by_ending[word] for word in reversed([chosen.lower()] if chosen else words) if word in by_ending]
    if not found:
        raise ConfigError(
            f"Expected one of {', '.join(FORMATS)}. Received: {chosen or path!r}.",
            fix="Name the formats, as in --from csv --to tfrecord.",
        )
    return found[0]


def read_rows(
    path: str, file_format: str, *, labels: str | None = None, options: dict[str, str] | None = None
) -> Rows:
    """Open a file or folder; `labels` is the second file of formats that have one."""
    return FORMATS[file_format].read(path, labels, options or {})


def convert_file(
    target: str, *, to: str, rows: Rows, on_progress: OnProgress, options: dict[str, str] | None = None
) -> int:
    """Write rows to a file of another format; return their number."""
    if storage.exists(target):
        raise StorageError(
            f"Expected nothing at the target. Received: OUT={target!r}, which exists.",
            fix="Choose another name, or delete it first.",
        )
    writer = FORMATS[to].writer
    if writer is None:
        raise ConfigError(
            f"{to} is read, not written. Received: OUT={target!r}.",
            fix=f"Pass --to with one of {', '.join(name for name, each in FORMATS.items() if each.writer)}.",
        )
    name = target.rstrip("/").rpartition("/")[2]
    # The temporary name keeps the ending, which implies the compression.
    aside = storage.sibling(target, f".{uuid.uuid4().hex}.{name}")
    done = 0
    try:
        with writer(aside, rows.schema, parse_options(options or {})) as sink:
            for batch in rows.batches:
                sink.write(batch)
                done += batch.num_rows
                on_progress(done, rows.total)
        storage.publish(aside, target)
    except BaseException:
        storage.delete(aside)
        raise
    return done
