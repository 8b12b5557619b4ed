"""HDFS over HTTP (WebHDFS), for machines without hdfs-native and for ``webhdfs://`` URLs."""

import getpass
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fsspec.implementations.webhdfs import WebHDFS

_ADDRESS = "dfs.namenode.http-address"
_PORT = 9870  # of a NameNode, where nothing else is said
BLOCK = 1 << 20  # bytes


class WebHdfs(WebHDFS):  # type: ignore[misc]
    """fsspec's WebHDFS, with renames that replace or fail, and files that are sent and received in one piece."""

    def mv(self, path1: str, path2: str, *, overwrite: bool = False, **_: Any) -> None:
        """Rename; without this option HDFS answers an impossible rename with "false" and no error."""
        options = "OVERWRITE" if overwrite else "NONE"
        self._call("RENAME", method="put", path=path1, destination=path2, renameoptions=options)

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        """Copy a local file."""
        answer = self._call("CREATE", "put", rpath, redirect=False, overwrite="true")
        with Path(lpath).open("rb") as source:
            self.session.put(self._apply_proxy(answer.headers["Location"]), data=source).raise_for_status()

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        """Copy a file to local disk."""
        answer = self._call("OPEN", path=rpath, redirect=False)
        with self.session.get(self._apply_proxy(answer.headers["Location"]), stream=True) as got:
            got.raise_for_status()
            with Path(lpath).open("wb") as target:
                shutil.copyfileobj(got.raw, target, BLOCK)


def open_webhdfs(authority: str, settings: Mapping[str, str], *, is_http: bool) -> WebHdfs | None:
    """Return the file system of a NameNode's web address; None where it is not known.

    Args:
        authority: What the URL names: a web address, or a NameNode or name service of ``hdfs://``.
        settings: Hadoop's, which name the web addresses.
        is_http: Whether `authority` is a web address.
    """
    user = os.environ.get("HADOOP_USER_NAME") or settings.get("hadoop.user") or getpass.getuser()
    addresses = [authority] if is_http else list(_addresses(authority, settings))
    for tries_left, address in reversed(list(enumerate(reversed(addresses)))):
        host, _, port = address.rpartition("@")[2].partition(":")
        fs = WebHdfs(host, int(port or _PORT), user=user, skip_instance_cache=True)
        if not tries_left or _is_active(fs):
            return fs
    return None


def _addresses(authority: str, settings: Mapping[str, str]) -> Iterator[str]:
    names = settings.get(f"dfs.ha.namenodes.{authority}", "")
    for name in filter(None, (each.strip() for each in names.split(","))):
        if address := settings.get(f"{_ADDRESS}.{authority}.{name}"):
            yield address
    if not names and (address := settings.get(f"{_ADDRESS}.{authority}") or settings.get(_ADDRESS)):
        yield address.replace("0.0.0.0", authority.partition(":")[0])


def _is_active(fs: WebHdfs) -> bool:
    try:
        fs.info("/")
    except Exception as error:  # noqa: BLE001 - a standby, or a machine that is gone: the next one is tried
        return "Permission" in type(error).__name__
    return True
