"""Your function as bytes, or an error that names what cannot be sent."""

import errno
import hashlib
import inspect
import io
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

import cloudpickle

from emberflow.errors import ConfigError, ShippingError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark Connect takes no message above 128 MB, and the function is only a part of one.
CONNECT_LIMIT = 100 * 1024 * 1024
# Above this tasks fetch the function from the driver: Spark would hold several copies of it in each process.
INLINE_LIMIT = 8 * 1024 * 1024
CHUNK = 1 << 20  # bytes in memory at a time, whatever the size of the function
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, kw_only=True)
class Shipment:
    """Your function, pickled: in memory if it is small, else in a file that has no name.

    Attributes:
        size: Its bytes.
        data: All of them, where they are part of the `TaskSpec`; else empty.
    """

    size: int
    data: bytes = field(default=b"", repr=False)
    _file: IO[bytes] | None = field(default=None, repr=False)

    def fileno(self) -> int:
        """Return the descriptor of the file."""
        assert self._file is not None  # noqa: S101 - only asked where there is no data, for the type checker
        return self._file.fileno()

    def read_at(self, size: int, position: int) -> bytes:
        """Return some bytes of the file, whose own position stays: several threads may send it at once."""
        return os.pread(self.fileno(), size, position)

    def read(self) -> bytes:
        """Return all bytes, wherever they are."""
        if self._file is None:
            return self.data
        self._file.seek(0)
        return self._file.read()

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes of the file, some at a time."""
        at = 0
        while chunk := os.pread(self.fileno(), CHUNK, at):
            yield chunk
            at += len(chunk)

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.close()


def shipment_of(fn: Callable[..., Any], *, is_connect: bool) -> Shipment:
    """Return `fn` pickled, of any size; a module that only the driver has is included by value."""
    limit = CONNECT_LIMIT if is_connect else INLINE_LIMIT
    file: Any = tempfile.SpooledTemporaryFile(max_size=limit, prefix="emberflow-")  # noqa: SIM115 - the shipment closes it
    try:
        _pickle(fn, file)
        size = file.tell()
        if size > limit:
            file.flush()
    except OSError as error:
        raise _no_room(error) from error
    if size > limit:
        return Shipment(size=size, _file=file)
    with file:
        file.seek(0)
        return Shipment(size=size, data=file.read())


def ship_artifact(spark: "SparkSession", shipment: Shipment) -> str:
    """Have Spark Connect send the function to the executors; return the file's name.

    It stays there as long as the session: Spark deletes no artifact before.
    """
    digest = hashlib.blake2b(digest_size=16)
    with tempfile.TemporaryDirectory(prefix="emberflow-") as folder:
        aside = Path(folder) / "function"
        with aside.open("wb") as file:
            for chunk in shipment.chunks():
                digest.update(chunk)
                file.write(chunk)
        path = aside.rename(Path(folder) / f"emberflow-{digest.hexdigest()}.pickle")
        spark.addArtifact(str(path), file=True)
        return path.name


def ship(fn: Callable[..., Any], *, is_connect: bool) -> bytes:
    """Return `fn` pickled, to be sent by Spark; a module that only the driver has is included by value."""
    file = io.BytesIO()
    _pickle(fn, file)
    data = file.getvalue()
    if is_connect and len(data) > CONNECT_LIMIT:
        raise ShippingError(
            f"On Spark Connect a function may hold at most {CONNECT_LIMIT >> 20} MB of data. "
            f"Received: {len(data) >> 20} MB.",
            fix="Let the function read the data itself, or pass it as a DataFrame: ef.run(fn, data=df).",
        )
    return data


def _no_room(error: OSError) -> StorageError:
    return StorageError(
        f"Your function must fit into the temporary folder {tempfile.gettempdir()}. Received: {error}.",
        fix="Free space there, or set TMPDIR to a folder with more room before the driver starts.",
    )


def _pickle(fn: Callable[..., Any], file: IO[bytes]) -> None:
    if not callable(fn):
        raise ConfigError(
            f"The first argument must be a function of one argument, `ctx`. Received: {fn!r}.",
            fix="Pass the function itself: ef.run(train, ...), not ef.run(train(), ...).",
        )
    with _by_value(_module_of(fn)):
        try:
            cloudpickle.dump(fn, file)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            raise _explain(fn, error) from error


def _module_of(fn: Any) -> ModuleType | None:
    """Return the module that defines `fn` if executors will not have it: one that was never installed."""
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    if module is None or module.__name__ == "__main__" or not getattr(module, "__file__", None):
        return None
    installed = [sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    path = Path(str(module.__file__)).resolve()
    if any(path.is_relative_to(Path(folder).resolve()) for folder in installed):
        return None
    return None if module.__name__.partition(".")[0] == "emberflow" else module


@contextmanager
def _by_value(module: ModuleType | None) -> Iterator[None]:
    if module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _explain(fn: Callable[..., Any], error: Exception) -> ShippingError:
    """Name the variable that cannot be pickled, by trying each that the function uses."""
    for name, value in _variables(fn):
        try:
            cloudpickle.dumps(value)
        except Exception:  # noqa: BLE001 - pickling runs the value's own code
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            return ShippingError(
                f"Your function uses the variable `{name}`, a {kind}, which cannot be pickled: {error}",
                fix=f"Make `{name}` inside the function, on the node that needs it.",
            )
    return ShippingError(
        f"Your function cannot be pickled: {type(error).__name__}: {error}",
        fix="Make what it needs inside the function, on the node that needs it.",
    )


def _variables(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yield what travels with the function: arguments of a partial, closure, globals, defaults, attributes."""
    while hasattr(fn, "func"):
        yield from ((f"argument {place}", value) for place, value in enumerate(fn.args))
        yield from fn.keywords.items()
        fn = fn.func
    if inspect.ismethod(fn):
        yield from getattr(fn.__self__, "__dict__", {}).items()
        fn = fn.__func__
    if inspect.isfunction(fn):
        found = inspect.getclosurevars(fn)
        yield from found.nonlocals.items()
        yield from found.globals.items()
        yield from _defaults(fn)
    else:
        yield from getattr(fn, "__dict__", {}).items()


def _defaults(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of `fn` that have a default value."""
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            yield name, parameter.default
