"""Your function as bytes, or an error that names what cannot be sent."""

import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from emberflow.errors import ConfigError, ShippingError

# Spark Connect takes no message above 128 MB, and the function is only a part of one.
CONNECT_LIMIT = 100 * 1024 * 1024


def ship(fn: Callable[..., Any], *, is_connect: bool) -> bytes:
    """Return `fn` pickled; a module that only the driver has goes along by value."""
    if not callable(fn):
        raise ConfigError(
            f"The first argument must be a function of one argument, `ctx`. Received: {fn!r}.",
            fix="Pass the function itself: ef.run(train, ...), not ef.run(train(), ...).",
        )
    with _by_value(_module_of(fn)):
        try:
            data: bytes = cloudpickle.dumps(fn)
        except Exception as error:
            raise _explain(fn, error) from error
    if is_connect and len(data) > CONNECT_LIMIT:
        raise ShippingError(
            f"On Spark Connect a function may hold at most {CONNECT_LIMIT >> 20} MB of data. "
            f"Received: {len(data) >> 20} MB.",
            fix="Let the function read the data itself, or pass it as a DataFrame: ef.run(fn, data=df).",
        )
    return data


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
