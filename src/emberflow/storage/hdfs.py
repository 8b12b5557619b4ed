"""HDFS by hdfs-native, which needs no JVM: fsspec's file system of it, with what transfers and listings need."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hdfs_native import WriteOptions
from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem

from emberflow._plan import deadlines
from emberflow.storage.outages import expect, outlast

BLOCK = 1 << 20  # bytes that go to the driver at a time: each call costs as much as some hundred kilobytes


def open_hdfs(protocol: str, authority: str, settings: Mapping[str, str]) -> Any:
    """Return the file system of a NameNode, a name service or a mount table."""
    host, _, port = authority.rpartition("@")[2].partition(":")
    kind = {"hdfs": Hdfs, "viewfs": Viewfs}[protocol]
    # A cached client hangs every process forked later, the launch of the JVM included.
    options: dict[str, Any] = {"skip_instance_cache": True, **settings, **_few_attempts()}
    return kind(host or None, int(port) if port else None, **options)


def _few_attempts() -> dict[str, str]:
    """Return the settings with which the driver finds an active NameNode or fails: `outlast` knows when to wait."""
    milliseconds = str(int(deadlines.FAILOVER_PAUSE * 1000))
    return {
        "dfs.client.failover.max.attempts": "4",
        "dfs.client.failover.sleep.base.millis": milliseconds,
        "dfs.client.failover.sleep.max.millis": milliseconds,
    }


class _Outlasting:
    """hdfs-native's client whose calls outlast a NameNode that starts again."""

    def __init__(self, client: Any, address: str) -> None:
        self._client = client
        self._address = address

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **options: outlast(self._address, lambda: method(*args, **options))

    def list_status(self, path: str, recursive: bool) -> list[Any]:
        """Return the whole listing: the driver asks for it in parts."""
        return outlast(self._address, lambda: list(self._client.list_status(path, recursive)))

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        """Rename; also where the NameNode did so, and went away before it said so."""
        failures: list[Exception] = []

        def once() -> None:
            try:
                self._client.rename(source, target, overwrite)
            except Exception as error:
                if not (failures and isinstance(error, FileNotFoundError) and self._is_there(target)):
                    failures.append(error)
                    raise

        outlast(self._address, once)

    def _is_there(self, path: str) -> bool:
        try:
            self._client.get_file_info(path)
        except FileNotFoundError:
            return False
        return True


class _Transfers:
    """What hdfs-native's file system lacks: blocks of a useful size, listings in one call, names as they are."""

    protocol: str
    host: str | None
    port: int | None
    client: Any

    def __init__(self, host: str | None, port: int | None, **options: Any) -> None:
        super().__init__(host, port, **options)  # type: ignore[call-arg]
        self._driver = self.client
        self._address = f"{self.protocol}://{host or ''}{f':{port}' if port else ''}"
        self.client = _Outlasting(self._driver, self._address)
        services = [name.strip() for name in options.get("dfs.nameservices", "").split(",")]
        if self._address == options.get("fs.defaultFS", "").rstrip("/") or (host or "/") in services:
            expect(self._address)  # it is no misspelt one

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
            found = self.client.list_status(self._strip_protocol(path), True)
            listing = [each for each in found if not each.isdir]
        except FileNotFoundError:
            listing = []
        infos = {each.path: self._convert_file_status(each) for each in listing}  # type: ignore[attr-defined]
        return infos if detail else sorted(infos)

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        """Copy a local file; from its beginning again where HDFS went away meanwhile."""
        outlast(self._address, lambda: self._put(lpath, self._strip_protocol(rpath)))

    def _put(self, lpath: str, path: str) -> None:
        with Path(lpath).open("rb", buffering=0) as source, self._created(path) as target:
            while block := source.read(BLOCK):
                target.write(block)

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        """Write a file; from its beginning again where HDFS went away meanwhile."""

        def put() -> None:
            with self._created(self._strip_protocol(path)) as target:
                target.write(value)

        outlast(self._address, put)

    def _created(self, path: str) -> Any:
        return self._driver.create(path, WriteOptions(overwrite=True))

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        """Copy a file to local disk; from its beginning again where HDFS went away meanwhile."""

        def get() -> None:
            source = self._driver.read(self._strip_protocol(rpath))
            with Path(lpath).open("wb") as target:
                target.writelines(source.read_range_stream(0, len(source)))

        outlast(self._address, get)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        opened = super()._open(path, mode, **options | {"block_size": None})  # type: ignore[misc]
        if mode == "rb":
            return io.BufferedReader(_Reader(opened), BLOCK)
        return io.BufferedWriter(_Writer(opened), BLOCK)


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


class _Writer(io.RawIOBase):
    """A file of hdfs-native that takes bytes: it would read a view, as Python's buffers pass it, number by number."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def writable(self) -> bool:
        return True

    def write(self, buffer: Any) -> int:
        return int(self._opened.write(bytes(buffer)))

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._opened.close()
