"""How the parameter server merges what a worker pushes into its own values."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import emberflow as ef

Array = NDArray[Any]
Combiner = str | Callable[..., Array]  # what `ctx.periodic_session` takes


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A variable of ``param_list``."""

    name: str
    shape: tuple[int, ...]


class WeightCombiner:
    """Base of combiners; yours has a `compute` of its own, which the parameter server calls for each push."""

    def compute(
        self, origin_weight: Array, new_weight: Array, worker_id: int | str = -1, name: str | None = None
    ) -> Array:
        """Return the server's new value of a variable.

        Args:
            origin_weight: The server's value.
            new_weight: The worker's value.
            worker_id: The worker.
            name: The variable.
        """
        raise NotImplementedError("method not implemented")

    def get_status(self) -> Any:
        """Return what your combiner wants to tell; Emberflow does not call it."""
        raise NotImplementedError("method not implemented")

    def note_pulled(self, pulled: Array, worker_id: int | str, name: str | None) -> None:
        """Be told what a worker had pulled before it trained, just before `compute`."""


class MeanWeightCombiner(WeightCombiner):
    """Moves the server's value a part of the way to the worker's.

    Args:
        num: The whole of which a push is one part, usually the number of workers.
    """

    def __init__(self, num: int) -> None:
        self._num = num

    def compute(
        self,
        origin_weight: Array,
        new_weight: Array,
        worker_id: int | str = -1,  # noqa: ARG002 - the signature of all combiners
        name: str | None = None,  # noqa: ARG002
    ) -> Array:
        """Return the server's value, moved by one part of the distance to the worker's."""
        return origin_weight + (new_weight - origin_weight) / self._num


class UpdateMeanWeightCombiner(WeightCombiner):
    """Takes the first push as it is, and the mean of the server's value and the worker's for all later ones.

    Args:
        server: Not needed any more: the combiner itself knows which push is the first.
    """

    def __init__(self, server: Any = None) -> None:
        self._server = server
        self._pushed: set[str | None] = set()

    def compute(
        self,
        origin_weight: Array,
        new_weight: Array,
        worker_id: int | str = -1,  # noqa: ARG002 - the signature of all combiners
        name: str | None = None,
    ) -> Array:
        """Return the worker's value if it is the first for this variable, else the mean of both."""
        is_first = name not in self._pushed
        self._pushed.add(name)
        return new_weight if is_first else (origin_weight + new_weight) / 2


class DeltaWeightCombiner(WeightCombiner):
    """Adds what a worker has learned since it pulled, whatever others have pushed meanwhile.

    tensorspark itself took the difference to the result of the worker's own last push, and for the first push the
    whole value. So each push counted the updates of other workers again. Here it is the difference to what this
    worker had pulled. Where nobody has told that, which is so in direct calls only, it had pulled the server's value.

    Attributes:
        last_weight: What each worker has, by worker and variable.
    """

    def __init__(self) -> None:
        self.last_weight: dict[int | str, dict[str | None, Array]] = {}

    def compute(
        self, origin_weight: Array, new_weight: Array, worker_id: int | str = -1, name: str | None = None
    ) -> Array:
        """Return the server's value and what the worker has learned, added up."""
        if worker_id == -1:
            raise ef.ConfigError(
                "A DeltaWeightCombiner must know whose push it is. Received: worker_id=-1.",
                fix="Pass worker_id=..., the number of the worker.",
            )
        mine = self.last_weight.setdefault(worker_id, {})
        mine[name] = origin_weight + (new_weight - mine.get(name, origin_weight))
        return mine[name]

    def note_pulled(self, pulled: Array, worker_id: int | str, name: str | None) -> None:
        """Keep what the worker had pulled: its difference to that is what it has learned."""
        self.last_weight.setdefault(worker_id, {})[name] = pulled

    def reset_value(self) -> None:
        """Forget what workers had pulled."""
        self.last_weight = {}


def combiner_of(weight_combiner: WeightCombiner | None, parameters: Sequence[Parameter]) -> Combiner:
    """Return what Emberflow calls the combiner: a name where it has the same, else a function."""
    if weight_combiner is None:
        return "mean"
    if type(weight_combiner) is DeltaWeightCombiner:
        return "delta"
    return functools.partial(_compute, weight_combiner, tuple(parameters))


def _compute(
    combiner: WeightCombiner,
    parameters: Sequence[Parameter],
    server: Array,
    pushed: Array,
    pulled: Array,
    *,
    rank: int,
    variable: int,
) -> Array:
    """Call a combiner with arrays of the variable's shape; Emberflow's are flat."""
    parameter = parameters[variable]
    origin, new, before = (each.reshape(parameter.shape) for each in (server, pushed, pulled))
    combiner.note_pulled(before, rank, parameter.name)
    return np.asarray(combiner.compute(origin, new, worker_id=rank, name=parameter.name)).reshape(-1)
