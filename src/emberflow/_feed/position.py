"""Where training stands in its data: a value to keep in a checkpoint, the same on every rank."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from emberflow._feed.shard_facts import ShardFacts
from emberflow.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Position:
    """What has been trained on so far: all steps of earlier epochs, and the first `step` steps of `epoch`.

    It is the same on all ranks, so that the chief alone may keep it. A rank with n rows has taken the
    first ``step * n // steps`` rows of the epoch's order. When the batch size changed within the epoch, what
    was left of it was cut anew: `earlier` has the steps before that, and the formula holds for what was left.

    Attributes:
        name: The data's name.
        epoch: Whole passes over the data before this one.
        step: Steps taken in this epoch.
        steps: Steps that the epoch, or what was left of it, is cut into.
        seed: What the orders come from.
        shuffle: Whether the rows are permuted.
        rows: Rows of all ranks together.
        digest: Of the shards of all ranks, whatever the order of their rows.
        earlier: Steps taken in this epoch with other batch sizes, as pairs of `step` and `steps`.
    """

    name: str
    epoch: int
    step: int
    steps: int
    seed: int
    shuffle: bool
    rows: int
    digest: str
    earlier: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> str:
        """Return the position as one line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Position":
        """Return the position that `to_json` wrote."""
        fields = json.loads(text)
        earlier = tuple((step, steps) for step, steps in fields.pop("earlier"))
        return cls(**fields, earlier=earlier)


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What the shards of all ranks hold together.

    Attributes:
        rows: Rows of all ranks.
        digest: Of their shards; other rows, or another number of ranks, change it.
    """

    rows: int
    digest: str

    def changed_from(self, rows: int, digest: str) -> DataError:
        """Return the error that says that the rows were others when a checkpoint was saved."""
        return DataError(
            "The rows must be those that the position was taken on. Received: "
            f"{rows} rows with digest {digest} then, {self.rows} rows with {self.digest} now.",
            "Give the DataFrame an order that repeats (write it out once and read that, or sort before limit "
            "and sample with a seed), and resume with the same number of workers.",
        )


def contents_of(shards: Sequence[ShardFacts]) -> Contents:
    """Return what the shards of all ranks hold."""
    return Contents(rows=sum(shard.rows for shard in shards), digest=digest_of_shards(shards))


def rows_taken(rows: int, cuts: Iterable[tuple[int, int]]) -> int:
    """Return how many rows of a shard were taken by steps of several cuts, one after the other.

    >>> rows_taken(100, [(3, 10)]), rows_taken(100, [(3, 10), (1, 7)])
    (30, 40)
    """
    taken = 0
    for step, steps in cuts:
        taken += step * (rows - taken) // steps
    return taken


def digest_of_shards(shards: Sequence[ShardFacts]) -> str:
    """Return one digest for the shards of all ranks: other rows, or another number of ranks, change it."""
    text = json.dumps([[shard.rows, shard.digest] for shard in shards])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
