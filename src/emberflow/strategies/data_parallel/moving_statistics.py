"""Moving statistics in the middle of an epoch: those of each rank, for a checkpoint.

Ranks change them by their own batches, and average them at the end of an epoch (`broadcast.average_statistics`). A
run that resumes within an epoch has the same result as one without a restart only if each rank gets its own back:
averages alone would be weighted by other numbers of rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import tensorflow as tf
from emberflow.strategies.data_parallel.broadcast import LEAST_ROWS, differing_variables
from emberflow.strategies.data_parallel.replica import Replica
from emberflow.strategies.transport.interface import Array

_ROWS = "rows by rank"
_VALUES = " by rank"


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What the ranks' own batches have changed since the epoch began.

    Attributes:
        rows: Rows that each rank has trained on since then.
        values: By place in ``model.variables``, each rank's value.
    """

    rows: Array
    values: dict[int, Array]

    @property
    def ranks(self) -> int:
        """How many ranks there were."""
        return len(self.rows)

    def mean(self) -> dict[int, Array]:
        """Return the average by place, weighted by rows, as it is at the end of an epoch."""
        weights = np.maximum(self.rows, LEAST_ROWS)
        means = {place: np.average(each, axis=0, weights=weights) for place, each in self.values.items()}
        return {place: mean.astype(self.values[place].dtype) for place, mean in means.items()}

    def to_arrays(self) -> dict[str, Array]:
        """Return all of it as named arrays, for a file."""
        return {_ROWS: self.rows} | {f"{place}{_VALUES}": each for place, each in self.values.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "Statistics | None":
        """Return what `to_arrays` returned, or None if it is not among the arrays."""
        if _ROWS not in arrays:
            return None
        names = [name for name in arrays if name.endswith(_VALUES) and name != _ROWS]
        values = {int(name.removesuffix(_VALUES)): np.asarray(arrays[name]) for name in names}
        return cls(rows=np.asarray(arrays[_ROWS]), values=values)


def gather_statistics(model: Any) -> Statistics | None:
    """Return all ranks' statistics; to be called on all ranks after the same step. None where all are equal."""
    replica = _replica_of(model)
    if replica is None or not replica.has_trained:
        return None
    changed = differing_variables(replica)
    if not changed:
        return None
    places = {id(variable): place for place, variable in enumerate(model.variables)}
    gather = replica.transport.gather
    return Statistics(
        rows=np.asarray(gather(tf.reshape(tf.convert_to_tensor(replica.rows_seen), [1]))),
        values={
            places[id(each)]: np.asarray(gather(tf.convert_to_tensor(each)[tf.newaxis])) for each in changed
        },
    )


def set_statistics(model: Any, statistics: Statistics) -> None:
    """Give this rank its own part of what `gather_statistics` returned, if the number of ranks is the same."""
    replica = _replica_of(model)
    if replica is None or replica.transport.ranks != statistics.ranks:
        return
    rank = replica.transport.rank
    for place, values in statistics.values.items():
        model.variables[place].assign(values[rank])
    replica.rows_seen.assign(statistics.rows[rank])


def _replica_of(model: Any) -> Replica | None:
    return getattr(vars(model).get("fit"), "replica", None)
