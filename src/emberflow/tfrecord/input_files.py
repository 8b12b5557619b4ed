"""The files to read: lists, patterns, folders, ``key=value`` folders, and parts of large files."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from emberflow import storage
from emberflow.errors import ConfigError, StorageError
from emberflow.tfrecord.compression import codec_of
from emberflow.tfrecord.journal import uncounted_files
from emberflow.tfrecord.options import SPLIT_BYTES, Options

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_LEAST_SPLIT = 16 << 20  # bytes; decoding less takes less time than starting a task
_TASKS = 16  # files are split into about so many tasks: the reader does not know the number of slots
_LISTINGS = 10
"""How often a folder is listed again because writes were completed in the meantime."""


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file to read, and the values in the names of its folders."""

    path: str
    size: int
    modified: float = 0.0
    keys: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FilePart:
    """A file, or the part of it whose records start from byte `start` up to byte `stop`."""

    file: InputFile
    start: int = 0
    stop: int | None = None


def find_files(options: Options) -> list[InputFile]:
    """Return the files to read, sorted by path; raise StorageError where a path has no files."""
    if not options.paths:
        raise ConfigError("Expected a path. Received: none.", fix="Pass one: .load(path).")
    found: dict[str, InputFile] = {}
    for path in (single for given in options.paths for single in split_list(given)):
        for file in _expand(path, options):
            found[file.path] = file
    return [found[path] for path in sorted(found)]


def split_list(given: str) -> list[str]:
    """Return the parts of a comma list; commas inside braces belong to a pattern."""
    depth, parts, part = 0, [], ""
    for letter in given:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [each.strip() for each in [*parts, part] if each.strip()]


def _expand(path: str, options: Options) -> Iterator[InputFile]:
    patterns = list(_braces(path))
    if len(patterns) > 1 or any(letter in path for letter in "*?["):
        roots = [root for pattern in patterns for root in storage.glob(pattern) if not is_hidden(root)]
    else:
        roots = [path]
    count = 0
    for root in roots:
        if not storage.exists(root):
            continue
        count += 1
        yield from _list(root, options)
    if not count:
        raise StorageError(
            f"Expected files. Received: path={path!r}, which does not exist.",
            fix="Check the path: executors and driver must see it under this name.",
        )


def _braces(pattern: str) -> Iterator[str]:
    """Expand ``{a,b}``, which Hadoop's patterns support and fsspec's do not."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        yield pattern
        return
    for choice in match.group(1).split(","):
        yield from _braces(pattern[: match.start()] + choice + pattern[match.end() :])


def _list(root: str, options: Options) -> Iterator[InputFile]:
    if not storage.is_folder(root):
        yield from (
            InputFile(path=f.path, size=f.size, modified=f.modified) for f in storage.list_files(root)
        )
        return
    base = root.rstrip("/")
    files, uncounted = _counted(root, base)
    for file in files:
        inside = file.path[len(base) :].strip("/")
        folders, _, name = inside.rpartition("/")
        steps = folders.split("/") if folders else []
        if inside in uncounted or is_hidden(name) or any(is_hidden(step) for step in steps):
            continue
        if options.glob_filter and not fnmatch.fnmatchcase(name, options.glob_filter):
            continue
        if options.recursive:
            yield InputFile(path=file.path, size=file.size, modified=file.modified)
        elif all("=" in step for step in steps):
            keys = dict(_key_of(step) for step in steps)
            yield InputFile(path=file.path, size=file.size, modified=file.modified, keys=keys)


def _counted(root: str, base: str) -> tuple[list[storage.StoredFile], set[str]]:
    """List the files of a folder, and those to ignore because a write publishes or replaces them."""
    for _ in range(_LISTINGS - 1):
        files = storage.list_files(root)
        with suppress(FileNotFoundError):  # a write was completed in the meantime
            return files, uncounted_files(base, files)
    files = storage.list_files(root)
    return files, uncounted_files(base, files)


def is_hidden(path: str) -> bool:
    """Tell whether Spark skips a name: it starts with a dot or an underscore (except ``_key=value``)."""
    name = path.rstrip("/").rpartition("/")[2]
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _key_of(step: str) -> tuple[str, str | None]:
    key, _, value = step.partition("=")
    return unquote(key), None if value == NO_VALUE else unquote(value)


def folder_of(keys: Sequence[tuple[str, str | None]]) -> str:
    """Return the folders for the values of partition columns.

    >>> folder_of([("day", "2024-01-01"), ("city", None)])
    'day=2024-01-01/city=__HIVE_DEFAULT_PARTITION__'
    """
    return "/".join(
        f"{quote(key, safe=' ')}={NO_VALUE if value is None or value == '' else quote(value, safe=' ')}"
        for key, value in keys
    )


def split_files(files: Iterable[InputFile], options: Options) -> list[list[FilePart]]:
    """Divide files into tasks: large ones are split, small ones share a task."""
    files = list(files)
    total = sum(file.size for file in files)
    most = options.split_bytes or SPLIT_BYTES
    share = min(most, max(_LEAST_SPLIT, total // _TASKS))
    parts = [part for file in files for part in _parts(file, share, options)]
    tasks: list[list[FilePart]] = []
    filled = 0
    for part in parts:
        size = (part.stop if part.stop is not None else part.file.size) - part.start
        if not tasks or filled + size > share:
            tasks.append([])
            filled = 0
        tasks[-1].append(part)
        filled += size
    return tasks


def _parts(file: InputFile, share: int, options: Options) -> list[FilePart]:
    is_splittable = codec_of(file.path, options.compression).is_splittable
    if not is_splittable or not options.verify or not options.split_bytes or file.size <= share * 3 // 2:
        return [FilePart(file=file)]
    count = -(-file.size // share)
    edges = [file.size * place // count for place in range(count)]
    return [
        FilePart(file=file, start=start, stop=stop)
        for start, stop in zip(edges, [*edges[1:], None], strict=True)
    ]
