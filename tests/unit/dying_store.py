"""An object store for programs that are killed: it is gone from its n-th change on, also for their handlers."""

from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class KilledError(BaseException):
    """Stands for SIGKILL: no handler of ours catches it usefully, since the file system is gone too."""


class DyingStore(MemoryFileSystem):
    """An object store that is gone from the n-th change on."""

    protocol = ("dying",)
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    left = 0

    def _change(self) -> None:
        if DyingStore.left <= 0:
            raise KilledError
        DyingStore.left -= 1

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "rb":
            self._change()
        return super()._open(path, mode, **options)

    def rm(self, *args: Any, **options: Any) -> Any:
        self._change()
        return super().rm(*args, **options)

    def rm_file(self, *args: Any, **options: Any) -> Any:
        self._change()
        return super().rm_file(*args, **options)

    def cp_file(self, *args: Any, **options: Any) -> Any:
        self._change()
        return super().cp_file(*args, **options)


fsspec.register_implementation("dying", DyingStore, clobber=True)
