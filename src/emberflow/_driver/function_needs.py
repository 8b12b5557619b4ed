"""Which packages your function will import, as far as its code tells: nodes import them while their rows arrive."""

import functools
import inspect
from collections.abc import Callable, Iterator
from itertools import islice
from types import CodeType, ModuleType
from typing import Any

HEAVY = ("tensorflow", "keras", "tf_keras")
# Methods of `ctx` that need TensorFlow, and those that take a Keras model.
OF_TENSORFLOW = frozenset({"dataset", "strategy", "periodic_session"})
OF_KERAS = frozenset({"distribute", "periodic", "coordinate"})
# Code that sets variables may do so for an import that follows: KERAS_BACKEND, TF_USE_LEGACY_KERAS.
OF_ENVIRONMENT = frozenset({"environ", "putenv"})
MOST_VISITED = 500  # functions and objects; a program that refers to more of them is not searched to its end
MOST_PARTS = 100  # of one list or dict


def packages_used(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Return what a node should import before it calls `fn`; nothing where its code shows no use of TensorFlow.

    A function of ours tells it by its attribute `preload`. Of yours the code is searched, with the functions, classes
    and objects that it refers to: for imports, and for methods of `ctx` that need TensorFlow. One that uses
    ``os.environ`` gets nothing: it may set what an import reads.

    >>> def count(ctx):
    ...     return ctx.rank
    >>> def train(ctx):
    ...     import keras
    ...     return ctx.dataset(batch_size=32)
    >>> packages_used(count), packages_used(train)
    ((), ('tensorflow', 'keras'))
    """
    declared = getattr(fn, "preload", None)
    if isinstance(declared, tuple):
        return declared
    try:
        found = _search(fn)
    except Exception:  # noqa: BLE001 - looking at an object may run its own code, and nothing depends on the answer
        return ()
    if not found or found & OF_ENVIRONMENT:
        return ()
    return tuple(name for name in HEAVY if name in found | {"tensorflow"})


def _search(fn: Callable[..., Any]) -> set[str]:
    found: set[str] = set()
    seen: dict[int, Any] = {}  # which keeps them: an address is used again
    waiting: list[Any] = [fn]
    while waiting and len(seen) < MOST_VISITED:
        thing = waiting.pop()
        if id(thing) not in seen:
            seen[id(thing)] = thing
            found |= _signs(thing)
            waiting.extend(islice(_parts(thing), MOST_PARTS))
    return found


def _signs(thing: Any) -> set[str]:
    """Return the heavy packages that one object belongs to or whose names its code has."""
    if isinstance(thing, CodeType):
        names = {name.partition(".")[0] for name in thing.co_names}
        found = names & {*HEAVY, *OF_ENVIRONMENT}
        found |= {"tensorflow"} if names & OF_TENSORFLOW else set()
        return found | {"keras"} if names & OF_KERAS else found
    if isinstance(thing, ModuleType):  # and what it has imported itself
        modules = (each for each in vars(thing).values() if isinstance(each, ModuleType))
        homes = {thing.__name__, *(each.__name__ for each in modules)}
    else:
        own = thing if isinstance(thing, type) or inspect.isfunction(thing) else type(thing)
        homes = {str(getattr(own, "__module__", ""))}
    return {home.partition(".")[0] for home in homes} & set(HEAVY)


def _parts(thing: Any) -> Iterator[Any]:
    """Yield what an object refers to."""
    if isinstance(thing, CodeType):
        yield from (const for const in thing.co_consts if isinstance(const, CodeType))
    elif isinstance(thing, functools.partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif inspect.ismethod(thing):
        yield from (thing.__func__, thing.__self__)
    elif inspect.isfunction(thing):
        yield thing.__code__
        yield from _variables(thing)
    elif isinstance(thing, list | tuple | set | frozenset | dict):
        yield from thing.values() if isinstance(thing, dict) else thing
    elif isinstance(thing, type):
        yield from (each for each in vars(thing).values() if inspect.isfunction(each))
    elif callable(thing):
        yield type(thing)
        yield from getattr(thing, "__dict__", {}).values()


def _variables(fn: Any) -> Iterator[Any]:
    """Yield the global variables and the closure that a function uses; nested functions use the same globals."""
    names, codes = set[str](), [fn.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes.extend(const for const in code.co_consts if isinstance(const, CodeType))
    yield from (fn.__globals__[name] for name in names if name in fn.__globals__)
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
