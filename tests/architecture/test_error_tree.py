"""The tree of errors: drawn in its module, whole in the public surface, fit to travel."""

import inspect
import pickle
import re

import pytest

import emberflow
from emberflow import errors

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, errors.EmberflowError) and value.__module__ == errors.__name__
]


def drawn_tree() -> dict[str, str]:
    """Return class name -> name of the class above it, from the module's docstring."""
    above: list[str] = []
    parents: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"( *)([A-Z]\w+Error)\b", line):
            depth = len(found[1]) // 4
            parents[found[2]] = above[depth - 1] if depth else "Exception"
            above[depth:] = [found[2]]
    return parents


def test_the_drawn_tree_is_the_real_one() -> None:
    real = {cls.__name__: cls.__mro__[1].__name__ for cls in CLASSES}
    assert drawn_tree() == real


def test_all_errors_are_public() -> None:
    assert {cls.__name__ for cls in CLASSES} <= set(emberflow.__all__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_pickles_and_says_what_to_do(cls: type[errors.EmberflowError]) -> None:
    error = cls("It is wrong. Received: x=1.", fix="Do this.")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == str(error) == "It is wrong. Received: x=1.\nFix: Do this."
    assert (copy.problem, copy.fix) == ("It is wrong. Received: x=1.", "Do this.")
