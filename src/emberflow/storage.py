"""Files and folders on local disk, HDFS and object stores, by one small set of functions.

A path is a local path (``/data/x``, ``x``, ``file:/data/x``) or any URL that fsspec knows (``hdfs://``,
``s3://``, ``gs://``, ``memory://``). Paths that come back have the form of the path that went in.

A folder is published whole or not at all, on local disk also when the machine fails (`_durable`). Where a
rename is atomic (local disk, HDFS) the folder is uploaded under a hidden name beside its target and then renamed.
Object stores have no rename: there the files go below a prefix that nobody else uses, and the manifest
``_manifest.json``, one object written last, says which one counts. `folder_root` gives the place where the files
really are; `get_folder` and `list_files` go through it.
"""

import json
import posixpath
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from emberflow._durable import make_folders, sync_folder, sync_tree
from emberflow.errors import StorageError

MANIFEST = "_manifest.json"
RENAMING = frozenset({"file", "local", "hdfs", "viewfs"})  # a rename is atomic here

_PREFIX = re.compile(r"files-[0-9a-f]{32}")
_LOCAL = frozenset({"file", "local"})
_HADOOP = frozenset({"hdfs", "viewfs"})
_SAME_STORE = {
    "s3n": "s3",
    "abfss": "abfs",
    "wasb": "abfs",
    "wasbs": "abfs",
}  # Hadoop's names, fsspec's names
_DRIVERS = {
    **dict.fromkeys(["hdfs", "viewfs"], "'emberflow[hdfs]'"),
    **dict.fromkeys(["s3", "s3a"], "s3fs"),
    **dict.fromkeys(["gs", "gcs"], "gcsfs"),
    **dict.fromkeys(["abfs", "az", "adl"], "adlfs"),
    "sftp": "paramiko",
    "smb": "smbprotocol",
}


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """One file in a listing; `modified` is in seconds since 1970, or 0 where the store does not say."""

    path: str
    size: int
    modified: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A path with the file system it belongs to.

    `prefix` and `cut` turn a path as the driver says it back into the user's form: ``bucket/x`` into
    ``s3://bucket/x``, and ``container/x`` into ``abfss://container@account/x``.
    """

    fs: Any
    path: str
    protocol: str
    prefix: str
    cut: int = 0

    def named(self, path: str) -> str:
        return self.prefix + path[self.cut :]


def protocol_of(path: str) -> str:
    """Return the part before ``:/``, and ``file`` for a plain path.

    >>> protocol_of("s3://bucket/x"), protocol_of("/data/x"), protocol_of("file:/data/x")
    ('s3', 'file', 'file')
    """
    head, colon, rest = path.partition(":")
    return head.lower() if colon and rest.startswith("/") and head.isalnum() else "file"


def is_local(path: str) -> bool:
    """Say whether the path is on this machine's own disk."""
    return protocol_of(path) in _LOCAL


def join(base: str, *parts: str) -> str:
    """Join the parts to a path or URL with single slashes.

    >>> join("s3://bucket/models/", "mnist", "1")
    's3://bucket/models/mnist/1'
    """
    head = base if base.endswith("://") or not base.strip("/") else base.rstrip("/")
    return posixpath.join(head, *(part.strip("/") for part in parts))


def file_system(path: str) -> tuple[Any, str]:
    """Return the fsspec file system of a path, and the path as that file system says it."""
    place = _place(path)
    return place.fs, place.path


def sibling(path: str, name: str) -> str:
    """Return the path of another name in the same folder.

    >>> sibling("hdfs://host/models/mnist", ".mnist.tmp")  # doctest: +SKIP
    'hdfs://host/models/.mnist.tmp'
    """
    place = _place(path)
    return join(place.named(posixpath.dirname(place.path)), name)


@contextmanager
def open_file(path: str, mode: str = "rb") -> Iterator[IO[Any]]:
    """Open a file for the length of the block; folders on the way are made when writing.

    While the block runs others may see a part of the file; `write_bytes` never shows one.
    """
    place = _place(path)
    with _translated(path):
        if mode[0] in "wxa":
            place.fs.makedirs(posixpath.dirname(place.path), exist_ok=True)
        file = place.fs.open(place.path, mode)
    with file:
        yield file


def read_bytes(path: str) -> bytes:
    """Return the whole content of a file."""
    with open_file(path) as file:
        return bytes(file.read())


def write_bytes(path: str, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part."""
    if protocol_of(path) not in RENAMING:
        with open_file(path, "wb") as file:  # an object appears only when its upload is complete
            file.write(content)
        return
    aside = sibling(path, f".{_name(path)}.{uuid.uuid4().hex}.tmp")
    _make_folder_of(path)
    try:
        with open_file(aside, "wb") as file:
            file.write(content)
        publish(aside, path)
    except BaseException:
        with suppress(StorageError):
            delete(aside)
        raise


def exists(path: str) -> bool:
    """Say whether there is a file or folder."""
    place = _place(path)
    with _translated(path):
        return bool(place.fs.exists(place.path))


def is_folder(path: str) -> bool:
    """Say whether there is a folder; on object stores, whether anything is below the path."""
    place = _place(path)
    with _translated(path):
        return bool(place.fs.isdir(place.path))


def list_folder(path: str) -> list[str]:
    """Return the paths of what is directly in a folder, sorted; an empty list where there is no folder."""
    place = _place(path)
    with _translated(path):
        found = place.fs.ls(place.path, detail=False) if place.fs.isdir(place.path) else []
        names = {name.rstrip("/") for name in found} - {place.path}
        return sorted(place.named(name) for name in names)


def list_files(path: str, *, recursive: bool = True) -> list[StoredFile]:
    """Return the files of a folder (or the one file), sorted by path; an empty list for nothing."""
    place = _place(folder_root(path))
    with _translated(path), suppress(FileNotFoundError):
        found = place.fs.find(place.path, maxdepth=None if recursive else 1, detail=True)
        return [_stored(place, info) for _, info in sorted(found.items()) if info["type"] == "file"]
    return []


def glob(pattern: str) -> list[str]:
    """Return the paths that match ``*``, ``?``, ``[..]`` and ``**``, sorted."""
    place = _place(pattern)
    with _translated(pattern):
        return sorted(place.named(path) for path in place.fs.glob(place.path))


def delete(path: str) -> None:
    """Delete a file or a whole folder; nothing happens where there is none."""
    place = _place(path)
    with _translated(path), suppress(FileNotFoundError):
        place.fs.rm(place.path, recursive=True)


def rename(source: str, target: str) -> None:
    """Move a file or folder within one file system; atomic on those named in `RENAMING`."""
    place = _place(source)
    to = _place(target).path
    with _translated(target):
        place.fs.makedirs(posixpath.dirname(to), exist_ok=True)
        if place.protocol in _LOCAL:
            Path(place.path).replace(to)
        else:
            more = {"overwrite": True} if place.protocol in _HADOOP else {}
            place.fs.mv(place.path, to, recursive=True, **more)


def publish(source: str, target: str) -> None:
    """Rename a file or folder to its final name; on local disk its content is safe before, and its name after."""
    _sync_content(source)
    rename(source, target)
    _sync_name(target)


def put_folder(local: str | Path, path: str, *, overwrite: bool = True) -> None:
    """Publish a local folder at a path or URL: all of it, or (after a failure) none of it.

    Args:
        local: The folder to copy.
        path: Where it shall be.
        overwrite: Replace what is there; what was there stays until the new folder is complete.
    """
    if not overwrite and exists(path):
        raise StorageError(
            f"Expected no folder at the target. Received: path={path!r}, which exists.",
            fix="Choose another path, or allow overwriting it.",
        )
    if protocol_of(path) in RENAMING:
        _put_by_rename(Path(local), path)
    else:
        _put_by_manifest(Path(local), path)


def get_folder(path: str, local: str | Path) -> None:
    """Copy a published folder to a local one."""
    place = _place(folder_root(path))
    files = list_files(path)
    if not files:
        raise StorageError(
            f"Expected a folder with files. Received: path={path!r}, where there are none.",
            fix="Check the path, and that the program that wrote it ended well.",
        )
    with _translated(path):
        sources = [_place(file.path).path for file in files]
        names = [
            _name_below(place.path, source) for source in sources
        ]  # all are looked at before one is copied
        for source, name in zip(sources, names, strict=True):
            target = Path(local) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            place.fs.get_file(source, str(target))


def folder_root(path: str) -> str:
    """Return where the files of a published folder are: the path, or the prefix its manifest names."""
    if protocol_of(path) in RENAMING or not exists(join(path, MANIFEST)):
        return path
    prefix = str(json.loads(read_bytes(join(path, MANIFEST)))["prefix"])
    if not _PREFIX.fullmatch(prefix):  # whoever replaces the folder deletes what the manifest names
        raise StorageError(
            f"The manifest of {path!r} must name a folder of its own. Received: prefix={prefix!r}.",
            fix="Somebody else wrote this manifest: check who may write there, and publish the folder again.",
        )
    return join(path, prefix)


def _name_below(root: str, source: str) -> str:
    """Return a file's path below the folder it was listed in; refuse one that would lead out of a copy."""
    name = source[len(root) :].strip("/")
    if not source.startswith(root) or ".." in name.split("/"):
        raise StorageError(
            f"Names in a folder must stay inside it. Received: {source!r} in the listing of {root!r}.",
            fix="Somebody put a file there that would be written outside the copy: delete it.",
        )
    return name


def _put_by_rename(local: Path, path: str) -> None:
    aside, old = (sibling(path, f".{_name(path)}.{uuid.uuid4().hex}.{end}") for end in ("tmp", "old"))
    try:
        _make_folder_of(path)
        _upload(local, aside)
        _sync_content(aside)
        if exists(path):
            rename(path, old)  # a folder cannot be replaced in one step: the old one waits for the new one
        rename(aside, path)
        _sync_name(path)
    except BaseException:
        if exists(old) and not exists(path):
            rename(old, path)
        delete(aside)
        raise
    delete(old)


def _put_by_manifest(local: Path, path: str) -> None:
    prefix = f"files-{uuid.uuid4().hex}"
    before = folder_root(path)
    try:
        names = _upload(local, join(path, prefix))
        write_bytes(join(path, MANIFEST), json.dumps({"prefix": prefix, "files": names}).encode())
    except BaseException:
        delete(join(path, prefix))
        raise
    if before != path:
        delete(before)


def _make_folder_of(path: str) -> None:
    """Make the local folder that a path is in, and have the disk keep its name; stores make theirs themselves."""
    if is_local(path):
        with _translated(path):
            make_folders(Path(_place(path).path).parent)


def _sync_content(path: str) -> None:
    if is_local(path):
        with _translated(path):
            sync_tree(Path(_place(path).path))


def _sync_name(path: str) -> None:
    if is_local(path):
        with _translated(path):
            sync_folder(Path(_place(path).path).parent)


def _upload(local: Path, path: str) -> list[str]:
    place = _place(path)
    names = sorted(str(file.relative_to(local)) for file in local.rglob("*") if file.is_file())
    with _translated(path):
        place.fs.makedirs(place.path, exist_ok=True)
        for name in names:
            to = posixpath.join(place.path, name)
            place.fs.makedirs(posixpath.dirname(to), exist_ok=True)
            place.fs.put_file(str(local / name), to)
    return names


def _stored(place: _Place, info: dict[str, Any]) -> StoredFile:
    names = ("mtime", "modified", "LastModified", "modification_time", "created")
    name = next((name for name in names if name in info), "")
    modified = info.get(name) or 0
    seconds = modified.timestamp() if hasattr(modified, "timestamp") else float(modified)
    if name == "modification_time":  # HDFS counts milliseconds
        seconds /= 1000
    return StoredFile(path=place.named(info["name"]), size=int(info.get("size") or 0), modified=seconds)


def _name(path: str) -> str:
    return posixpath.basename(path.rstrip("/"))


def _place(path: str) -> _Place:
    from fsspec.core import url_to_fs

    protocol = protocol_of(path)
    known = _SAME_STORE.get(protocol, protocol)
    options = {} if protocol in _LOCAL else {"use_listings_cache": False}  # others write there too
    if protocol in _HADOOP:
        # A cached hdfs-native client hangs every process forked later, the launch of the JVM included.
        options = {"skip_instance_cache": True}
    try:
        fs, inside = url_to_fs(path if protocol in _LOCAL else known + path[len(protocol) :], **options)
    except (ImportError, ValueError) as error:
        raise _no_driver(path, known, error) from error
    except Exception as error:
        raise _failed(path, error) from error
    inside = inside.rstrip("/")
    if protocol in _LOCAL:
        return _Place(
            fs=fs, path=inside, protocol=protocol, prefix="file:" if path.startswith("file:") else ""
        )
    url = path.rstrip("/")
    cut = 0 if url.endswith(inside) else len(inside.partition("/")[0])
    prefix = url[: len(url) - len(inside[cut:])]
    return _Place(fs=fs, path=inside, protocol=protocol, prefix=prefix, cut=cut)


def _no_driver(path: str, protocol: str, error: Exception) -> StorageError:
    package = _DRIVERS.get(protocol)
    return StorageError(
        f"No driver for {protocol}:// is installed ({error}). Received: path={path!r}.",
        fix=f"pip install {package}" if package else "Use a path that fsspec knows, or install its driver.",
    )


def _failed(path: str, error: Exception) -> StorageError:
    return StorageError(
        f"The storage refused: {type(error).__name__}: {error}. Received: path={path!r}.",
        fix="Check that the path exists, that the host answers, and that this user may use it.",
    )


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turn the errors of any driver into ours, but leave "no such file" as Python knows it."""
    try:
        yield
    except (StorageError, FileNotFoundError):
        raise
    except Exception as error:
        raise _failed(path, error) from error
