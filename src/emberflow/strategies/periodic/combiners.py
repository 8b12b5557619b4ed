"""How the server of periodic averaging takes in what a worker pushes. Numpy only.

A combiner says what becomes of the centre, the server's value of a variable, when a worker that pulled
``pulled`` and trained for a while pushes ``pushed``:

    mean    centre + (pushed - centre) / workers: each push moves the centre a worker's share of the way
    delta   centre + (pushed - pulled): what the worker has learned since it pulled, whatever others did meanwhile
    yours   a function of centre, pushed and pulled

The delta is that against what this very worker pulled. Against anything else, such as the result of its last
push, the updates of other workers would be counted again with each push.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emberflow.errors import ConfigError

Array = NDArray[Any]
Function = Callable[[Array, Array, Array], Array]
Combiner = str | Function

MEAN, DELTA, OWN = "mean", "delta", "own"
NAMES = (MEAN, DELTA)


class CombinerError(Exception):
    """Your combiner raised; what it raised is the cause of this."""


def rule_of(combiner: Combiner, *, is_statistic: bool) -> str:
    """Return the name of the rule for one variable.

    Moving statistics, such as those of BatchNormalization, are averaged whatever the combiner: the sum of all
    workers' changes would shoot past the value that each of them moves to.

    >>> rule_of("delta", is_statistic=False), rule_of("delta", is_statistic=True)
    ('delta', 'mean')
    """
    if is_statistic:
        return MEAN
    return OWN if callable(combiner) else combiner


def check_combiner(combiner: object, name: str = "combiner") -> None:
    """Refuse what is neither a known name nor a function."""
    if combiner in NAMES or callable(combiner):
        return
    raise ConfigError(
        f'`{name}` must be "mean", "delta", or a function of centre, pushed and pulled. '
        f"Received: {name}={combiner!r}.",
        fix=f'Pass {name}="delta".',
    )


def load_of(rule: str, new: Array, pulled: Array, out: Array) -> None:
    """Write what a worker sends for one variable into `out`: for a function both values, one after the other."""
    if rule == DELTA:
        np.subtract(new, pulled, out=out)
    elif rule == MEAN:
        np.copyto(out, new)
    else:
        np.copyto(out[: new.size], new)
        np.copyto(out[new.size :], pulled)


def combine(rule: str, centre: Array, load: Array, workers: int, function: Function | None = None) -> None:
    """Take what a worker sent into the centre, in place.

    >>> centre = np.array([10.0])
    >>> combine("delta", centre, np.array([1.0]), 2); combine("mean", centre, np.array([13.0]), 2); centre
    array([12.])
    """
    if rule == DELTA:
        np.add(centre, load, out=centre)
    elif rule == MEAN:
        np.subtract(load, centre, out=load)
        np.divide(load, workers, out=load)
        np.add(centre, load, out=centre)
    elif function is not None:
        new = function(centre.copy(), load[: centre.size], load[centre.size :])
        np.copyto(centre, _checked(new, centre))


def _checked(new: object, centre: Array) -> Array:
    result = np.asarray(new)
    if result.shape != centre.shape:
        raise ConfigError(
            f"A combiner must return an array like the centre, of shape {centre.shape}. "
            f"Received: shape {result.shape}.",
            fix="Combine element by element: lambda centre, pushed, pulled: centre + 0.5 * (pushed - pulled).",
        )
    return result
