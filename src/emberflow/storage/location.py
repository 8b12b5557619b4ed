"""A path or URL: its protocol and its file system, opened with the settings of this process."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emberflow.errors import StorageError
from emberflow.storage.driver_options import hdfs_options, options_of
from emberflow.storage.failures import storage_error
from emberflow.storage.settings import current_settings

LOCAL = frozenset({"file", "local"})
HADOOP = frozenset({"hdfs", "viewfs", "webhdfs"})
RENAMING = LOCAL | HADOOP  # a rename is atomic here
BUCKETS = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs", "az"})

# Hadoop's protocol names and the names that fsspec has for the same stores.
_SAME_STORE = {"s3n": "s3", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}
_DRIVERS = {
    **dict.fromkeys(["hdfs", "viewfs"], "'emberflow[hdfs]'"),
    **dict.fromkeys(["s3", "s3a"], "'emberflow[s3]'"),
    **dict.fromkeys(["gs", "gcs"], "gcsfs"),
    **dict.fromkeys(["abfs", "az", "adl"], "adlfs"),
    "webhdfs": "requests",
    "sftp": "paramiko",
    "smb": "smbprotocol",
}


@dataclass(frozen=True, kw_only=True)
class Location:
    """A path with its file system.

    `prefix` and `cut` turn a path in the driver's form back into the user's form: ``bucket/x`` into
    ``s3://bucket/x``, and ``container/x`` into ``abfss://container@account/x``.
    """

    fs: Any
    path: str
    protocol: str
    prefix: str
    cut: int = 0

    def named(self, path: str) -> str:
        """Return a path of this file system in the user's form."""
        return self.prefix + path[self.cut :]

    @property
    def is_bucket(self) -> bool:
        """Whether the store has buckets of keys, and no folders."""
        return self.protocol in BUCKETS

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents where the store has folders; a bucket is never made."""
        if not self.is_bucket:
            self.fs.makedirs(path, exist_ok=True)


def protocol_of(path: str) -> str:
    """Return the part before ``:/``, and ``file`` for a plain path.

    >>> protocol_of("s3://bucket/x"), protocol_of("/data/x"), protocol_of("file:/data/x")
    ('s3', 'file', 'file')
    """
    head, colon, rest = path.partition(":")
    return head.lower() if colon and rest.startswith("/") and head.isalnum() else "file"


def is_local(path: str) -> bool:
    """Tell whether the path is on this machine's own disk."""
    return protocol_of(path) in LOCAL


def local_path(path: str) -> Path | None:
    """Return a path on this machine's own disk without its scheme; None for a path that is elsewhere.

    >>> str(local_path("file:///data/x")), str(local_path("data/x")), local_path("s3://bucket/x")
    ('/data/x', 'data/x', None)
    """
    return Path(re.sub(r"^(file|local):(//(?=/))?", "", path)) if is_local(path) else None


def join(base: str, *parts: str) -> str:
    """Join the parts to a path or URL with single slashes.

    >>> join("s3://bucket/models/", "mnist", "1")
    's3://bucket/models/mnist/1'
    """
    head = base if base.endswith("://") or not base.strip("/") else base.rstrip("/")
    return posixpath.join(head, *(part.strip("/") for part in parts))


def file_system(path: str) -> tuple[Any, str]:
    """Return the fsspec file system of a path, and the path in that file system's form."""
    location = locate(path)
    return location.fs, location.path


def sibling(path: str, name: str) -> str:
    """Return the path of another name in the same folder.

    >>> sibling("hdfs://host/models/mnist", ".mnist.tmp")  # doctest: +SKIP
    'hdfs://host/models/.mnist.tmp'
    """
    location = locate(path)
    return join(location.named(posixpath.dirname(location.path)), name)


def locate(path: str) -> Location:
    """Return a path with its file system, opened with the options used everywhere in emberflow."""
    protocol = protocol_of(path)
    known = _SAME_STORE.get(protocol, protocol)
    try:
        fs, inside = _opened(known, path if protocol in LOCAL else known + path[len(protocol) :])
    except (ImportError, ValueError) as error:
        raise _no_driver(path, known, error) from error
    except Exception as error:
        raise storage_error(path, error) from error
    inside = inside.rstrip("/")
    if protocol in LOCAL:
        return Location(
            fs=fs, path=inside, protocol=protocol, prefix="file:" if path.startswith("file:") else ""
        )
    url = path.rstrip("/")
    cut = 0 if url.endswith(inside) else len(inside.partition("/")[0])
    prefix = url[: len(url) - len(inside[cut:])]
    return Location(fs=fs, path=inside, protocol=protocol, prefix=prefix, cut=cut)


def _opened(protocol: str, url: str) -> tuple[Any, str]:
    hadoop = current_settings().hadoop
    if protocol in HADOOP:
        authority, _, inside = url.removeprefix(f"{protocol}:").removeprefix("//").partition("/")
        return _opened_hadoop(protocol, authority, hadoop), "/" + inside
    from fsspec.core import url_to_fs

    options = {} if protocol in LOCAL else {"use_listings_cache": False}  # other programs write there too
    fs, inside = url_to_fs(url, **options, **options_of(protocol, url, hadoop))
    return fs, inside


def _opened_hadoop(protocol: str, authority: str, hadoop: Mapping[str, str]) -> Any:
    if protocol == "webhdfs":
        from emberflow.storage.webhdfs import open_webhdfs

        return open_webhdfs(authority, hadoop, is_http=True)
    try:
        from emberflow.storage.hdfs import open_hdfs
    except ImportError:
        from emberflow.storage.webhdfs import open_webhdfs

        fs = open_webhdfs(authority, hadoop, is_http=False)
        if fs is None:
            raise
        return fs
    return open_hdfs(protocol, authority, hdfs_options(authority, hadoop))


def _no_driver(path: str, protocol: str, error: Exception) -> StorageError:
    package = _DRIVERS.get(protocol)
    return StorageError(
        f"No driver for {protocol}:// is installed ({error}). Received: path={path!r}.",
        fix=f"pip install {package}"
        if package
        else "Use a protocol that fsspec supports, or install its driver.",
    )


def name_of(path: str) -> str:
    """Return the last part of a path.

    >>> name_of("s3://bucket/models/mnist/")
    'mnist'
    """
    return posixpath.basename(path.rstrip("/"))
