"""An object store whose uploads wait for the test, fail on demand, and are counted."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

WITHIN = 20.0


class GatedStore(MemoryFileSystem):
    """An object store for the tests of uploads."""

    protocol = ("gated",)
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    gate = threading.Event()
    begun = threading.Semaphore(0)
    failing: ClassVar[set[str]] = set()
    error: ClassVar[type[Exception]] = PermissionError
    uploaded: ClassVar[list[tuple[str, bytes]]] = []
    running: ClassVar[set[str]] = set()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("gated:/")))

    def put_file(self, lpath: str, rpath: str, **_options: Any) -> None:
        assert rpath not in self.running, f"two uploads of {rpath} at once"
        self.running.add(rpath)
        try:
            GatedStore.begun.release()
            assert GatedStore.gate.wait(WITHIN)
            if any(name in rpath for name in self.failing):
                raise self.error(f"no permission to write {rpath}")
            self.pipe_file(rpath, Path(lpath).read_bytes())  # it appears whole, as in every object store
            self.uploaded.append((rpath, self.cat_file(rpath)))
        finally:
            self.running.discard(rpath)


@contextmanager
def gated_store() -> Iterator[type[GatedStore]]:
    """An empty store whose gate is open."""
    fsspec.register_implementation("gated", GatedStore, clobber=True)
    GatedStore.store.clear()
    GatedStore.pseudo_dirs[:] = [""]
    GatedStore.uploaded.clear()
    GatedStore.failing.clear()
    GatedStore.running.clear()
    GatedStore.begun = threading.Semaphore(0)
    GatedStore.gate.set()
    yield GatedStore
    GatedStore.gate.set()
