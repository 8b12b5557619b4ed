"""The position of training in its data: a value to store in a checkpoint, the same on every rank."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from emberflow._feed.shard_facts import ShardFacts
from emberflow.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Position:
    """What has been trained on so far: all steps of earlier epochs, and the first `step` steps of `epoch`.

    It is the same on all ranks, so the chief alone can store it. A rank with n rows has taken the first ``step * n
    // steps`` rows of the epoch's order. When the batch size changed within the epoch, the rest was divided again:
    `earlier` has the steps before that, and the formula holds for the rest.

    Attributes:
        name: The data's name.
        epoch: Complete passes over the data before this one.
        step: Steps taken in this epoch.
        steps: Steps of the epoch, or of the rest of it.
        seed: Seed of the orders.
        shuffle: Whether the rows are permuted.
        rows: Rows of all ranks together.
        digest: Digest of the shards of all ranks, independent of the order of their rows.
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
    """The rows of all ranks together.

    Attributes:
        rows: Rows of all ranks.
        digest: Digest of their shards; other rows or another number of ranks change it.
    """

    rows: int
    digest: str

    def changed_from(self, rows: int, digest: str) -> DataError:
        """Return the error for rows that differ from those at the time of the checkpoint."""
        return DataError(
            "The rows must be the same as when the position was recorded. Received: "
            f"{rows} rows with digest {digest} then, {self.rows} rows with {self.digest} now.",
            "Make the DataFrame deterministic (write it to files and read those, or sort before limit "
            "and sample with a seed), and resume with the same number of workers.",
        )


def contents_of(shards: Sequence[ShardFacts]) -> Contents:
    """Return the rows of all ranks together."""
    return Contents(rows=sum(shard.rows for shard in shards), digest=digest_of_shards(shards))


def rows_taken(rows: int, cuts: Iterable[tuple[int, int]]) -> int:
    """Return the number of rows that successive segments of an epoch took from a shard.

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
