"""How the server of periodic averaging merges what a worker pushes. Numpy only.

A combiner defines the server's new value of a variable when a worker that pulled ``pulled`` and trained for
a while pushes ``pushed``:

    mean    server + (pushed - server) / workers: each push moves the value a worker's share of the way
    delta   server + (pushed - pulled): what the worker has learned since it pulled, independent of other workers
    yours   a function of server, pushed and pulled; told whose push it is, where it has parameters for that

The difference is to what this very worker pulled. A difference to anything else, such as the result of its last push,
would count the updates of other workers again with each push.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from emberflow._choices import one_of
from emberflow.errors import ConfigError
from emberflow.strategies.transport.interface import Array

Function = Callable[
    ..., Array
]  # of server, pushed, pulled, and the keywords `rank` and `variable` if it has them
Combiner = str | Function

MEAN, DELTA, FUNCTION = "mean", "delta", "function"


class CombinerError(Exception):
    """Your combiner raised an exception, which is the cause of this one."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How one variable is pushed and merged.

    Attributes:
        write_push: Writes what a worker sends, from its values and those that it pulled, into the third array.
        merge: Merges what was sent into the server's values, in place; also given the number of workers and
            your function.
        push_factor: Values that a worker sends for each value of the variable.
    """

    write_push: Callable[[Array, Array, Array], None]
    merge: Callable[[Array, Array, int, Function | None], None]
    push_factor: int = 1


def _write_difference(new: Array, pulled: Array, out: Array) -> None:
    np.subtract(new, pulled, out=out)


def _write_values(new: Array, pulled: Array, out: Array) -> None:  # noqa: ARG001 - the signature of all rules
    np.copyto(out, new)


def _write_both(new: Array, pulled: Array, out: Array) -> None:
    np.copyto(out[: new.size], new)
    np.copyto(out[new.size :], pulled)


def _add(server: Array, push: Array, workers: int, function: Function | None) -> None:  # noqa: ARG001
    np.add(server, push, out=server)


def _move_a_share(server: Array, push: Array, workers: int, function: Function | None) -> None:  # noqa: ARG001
    np.subtract(push, server, out=push)
    np.divide(push, workers, out=push)
    np.add(server, push, out=server)


def _call_function(server: Array, push: Array, workers: int, function: Function | None) -> None:  # noqa: ARG001
    if function is not None:
        new = function(server.copy(), push[: server.size], push[server.size :])
        np.copyto(server, _checked(new, server))


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        MEAN: Rule(write_push=_write_values, merge=_move_a_share),
        DELTA: Rule(write_push=_write_difference, merge=_add),
        FUNCTION: Rule(write_push=_write_both, merge=_call_function, push_factor=2),
    }
)
NAMES = tuple(name for name in RULES if name != FUNCTION)  # what a user may pass by name


def rule_of(combiner: Combiner, *, is_statistic: bool) -> str:
    """Return the name of the rule for one variable.

    Moving statistics, such as those of BatchNormalization, are averaged whatever the combiner: the sum of all
    workers' changes would shoot past the value that each of them moves to.

    >>> rule_of("delta", is_statistic=False), rule_of("delta", is_statistic=True)
    ('delta', 'mean')
    """
    if is_statistic:
        return MEAN
    return FUNCTION if callable(combiner) else combiner


def check_combiner(combiner: object, name: str = "combiner") -> None:
    """Refuse what is neither a known name nor a function."""
    if combiner in NAMES or callable(combiner):
        return
    raise ConfigError(
        f"`{name}` must be {one_of(NAMES)}, or a function of server, pushed and pulled. "
        f"Received: {name}={combiner!r}.",
        fix=f'Pass {name}="{DELTA}".',
    )


def told(function: Function, *, rank: int, variable: int) -> Function:
    """Return your function with the rank that pushes and the variable's number, if it has such parameters.

    >>> told(lambda server, pushed, pulled, *, rank: rank, rank=3, variable=0)(None, None, None)
    3
    """
    known = {"rank": rank, "variable": variable}
    try:
        names = inspect.signature(function).parameters
    except ValueError:  # a function of C, such as numpy's
        return function
    wanted = {name: known[name] for name in names if name in known}
    return functools.partial(function, **wanted) if wanted else function


def write_push(rule: str, new: Array, pulled: Array, out: Array) -> None:
    """Write what a worker sends for one variable into `out`."""
    RULES[rule].write_push(new, pulled, out)


def merge(rule: str, server: Array, push: Array, workers: int, function: Function | None = None) -> None:
    """Merge what a worker sent into the server's values, in place.

    >>> server = np.array([10.0])
    >>> merge("delta", server, np.array([1.0]), 2); merge("mean", server, np.array([13.0]), 2); server
    array([12.])
    """
    RULES[rule].merge(server, push, workers, function)


def _checked(new: object, server: Array) -> Array:
    result = np.asarray(new)
    if result.shape != server.shape:
        raise ConfigError(
            f"A combiner must return an array like the server's, of shape {server.shape}. "
            f"Received: shape {result.shape}.",
            fix="Combine element by element: lambda server, pushed, pulled: server + 0.5 * (pushed - pulled).",
        )
    return result
