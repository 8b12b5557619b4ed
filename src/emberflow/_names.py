"""Names that a user may have misspelt: the closest known one goes into the error."""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

from emberflow.errors import UnknownNameError

P = ParamSpec("P")
R = TypeVar("R")


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like this one, or None if none is.

    >>> closest("featureCol", ["labelCol", "featuresCol"]), closest("batch_size", ["batchSize"]), closest("x", ["y"])
    ('featuresCol', 'batchSize', None)
    """
    plain = {_plain(each): each for each in known}
    found = difflib.get_close_matches(_plain(name), plain, n=1)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    return name.replace("_", "").lower()  # another library's style is not another name


def check_names(given: Iterable[str], known: Sequence[str], problem: Callable[[str], str]) -> None:
    """Refuse a name that is not known with this problem, and say which one was probably meant."""
    for name in given:
        if name not in known:
            meant = closest(name, known)
            fix = f"Did you mean {meant}?" if meant else f"Pass one of: {', '.join(known)}."
            raise UnknownNameError(problem(name), fix=fix)


def check_arguments(owner: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a keyword argument that the owner does not have."""
    check_names(given, known, lambda name: f"{owner} got an unexpected keyword argument {name!r}.")


def names_checked(fn: Callable[P, R]) -> Callable[P, R]:
    """Make the function refuse a misspelt keyword argument with the name that was probably meant."""
    parameters = inspect.signature(fn).parameters.values()
    known = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    positional = {each.name for each in parameters} - {*known}
    owner = f"{fn.__qualname__.removesuffix('.__init__')}()"

    @functools.wraps(fn)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check_arguments(owner, (name for name in kwargs if name not in positional), known)
        return fn(*args, **kwargs)

    return checked
