"""HDFS by hdfs-native, which needs no JVM: fsspec's file system of it, with what transfers and listings need."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hdfs_native import Client, WriteOptions
from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem

from emberflow.storage.failures import FAILURES, failure_of

BLOCK = 1 << 20  # bytes that go to the driver at a time: each call costs as much as some hundred kilobytes
_ATTEMPTS = "dfs.client.failover.max.attempts"
_FIRST_ATTEMPTS = "4"  # some seconds
_TRIES = 3  # of one file: a NameNode that has just started may still drop connections
_reached: set[str] = set()


def open_hdfs(protocol: str, authority: str, settings: Mapping[str, str]) -> Any:
    """Return the file system of a NameNode, a name service or a mount table."""
    host, _, port = authority.rpartition("@")[2].partition(":")
    kind = {"hdfs": Hdfs, "viewfs": Viewfs}[protocol]
    # A cached client hangs every process forked later, the launch of the JVM included.
    options: dict[str, Any] = {"skip_instance_cache": True, **settings}
    return kind(host or None, int(port) if port else None, **options)


class _Transfers:
    """What hdfs-native's file system lacks: blocks of a useful size, listings in one call, names as they are."""

    protocol: str
    host: str | None
    port: int | None
    storage_options: dict[str, Any]

    @property
    def client(self) -> Any:
        """The client; the first one of this process for an address must find a NameNode there within seconds.

        After that it tries for minutes, so that a NameNode that is started again ends no training.
        """
        url = self._client_url
        if url not in _reached:
            _check_reachable(url, self._settings)
            _reached.add(url)
        return self._client

    @client.setter
    def client(self, client: Any) -> None:
        self._client = client

    @property
    def _client_url(self) -> str:
        return f"{self.protocol}://{self.host or ''}{f':{self.port}' if self.port else ''}"

    @property
    def _settings(self) -> dict[str, str]:
        return {key: value for key, value in self.storage_options.items() if "." in key}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        """Cut scheme and host off; names may contain ``?`` and ``#``, which a URL's parser would take for its own."""
        inside = path.removeprefix(f"{cls.protocol}:")
        if inside != path and inside.startswith("//"):
            inside = "/" + inside[2:].partition("/")[2]
        return inside.rstrip("/") or "/"

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **options: Any,
    ) -> Any:
        """List all files below a path in one call; what is limited in depth goes the usual way."""
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)  # type: ignore[misc]
        try:
            listing = [
                each for each in self.client.list_status(self._strip_protocol(path), True) if not each.isdir
            ]
        except FileNotFoundError:
            listing = []
        infos = {each.path: self._convert_file_status(each) for each in listing}  # type: ignore[attr-defined]
        return infos if detail else sorted(infos)

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        """Copy a local file; from its beginning again where the NameNode went away meanwhile.

        The driver waits for a NameNode when a call begins, and fails the calls that it interrupts.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                self._put(lpath, self._strip_protocol(rpath))
            except Exception as error:
                if not tries_left or failure_of(error) is not FAILURES["unreachable"]:
                    raise
            else:
                return

    def _put(self, lpath: str, path: str) -> None:
        buffer = memoryview(bytearray(BLOCK))
        options = WriteOptions(overwrite=True)
        with Path(lpath).open("rb", buffering=0) as source, self.client.create(path, options) as target:
            while size := source.readinto(buffer):
                target.write(buffer[:size])

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        """Copy a file to local disk."""
        source = self.client.read(self._strip_protocol(rpath))
        with Path(lpath).open("wb") as target:
            target.writelines(source.read_range_stream(0, len(source)))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        opened = super()._open(path, mode, **options | {"block_size": None})  # type: ignore[misc]
        if mode == "rb":
            return io.BufferedReader(_Reader(opened), BLOCK)
        return io.BufferedWriter(opened, BLOCK)


class Hdfs(_Transfers, HdfsFileSystem):  # type: ignore[misc]
    """``hdfs://``."""


class Viewfs(_Transfers, ViewfsFileSystem):  # type: ignore[misc]
    """``viewfs://``."""


class _Reader(io.RawIOBase):
    """A file of hdfs-native as Python's buffers want it."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._opened.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._opened.seek(offset, whence)
        return int(self._opened.tell())

    def tell(self) -> int:
        return int(self._opened.tell())


def _check_reachable(url: str, settings: dict[str, str]) -> None:
    try:
        Client(url, {_ATTEMPTS: _FIRST_ATTEMPTS} | settings).get_file_info("/")
    except Exception as error:
        if failure_of(error) is FAILURES["unreachable"]:
            raise
