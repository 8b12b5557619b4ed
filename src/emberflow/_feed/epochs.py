"""The epochs of one shard: the order of its rows, also from a start in the middle of an epoch."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from emberflow._feed.arrow_to_numpy import FlatArrays
from emberflow._feed.feed_progress import Progress
from emberflow._feed.position import Position, contents_of, rows_taken
from emberflow._feed.row_windows import Rows
from emberflow._feed.shard_facts import ShardFacts
from emberflow._plan.steps import batch_bounds, common_steps, epoch_order
from emberflow.errors import ConfigError

WINDOW_STEPS = 4096  # empty steps hold no bytes: this bounds a window of them

_log = logging.getLogger("emberflow")

Fetch = Callable[[Rows, int, int], FlatArrays]
"""Returns the rows of an epoch's order from the second argument up to the third."""


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """The inputs of the order of one rank's rows.

    Attributes:
        name: The data's name.
        rank: This rank's number among those that hold rows.
        shards: The facts of all of them.
        batch_sizes: The batch size of each.
        shuffle: Whether each epoch has its own order.
        seed: Seed of the orders.
    """

    name: str
    rank: int
    shards: Sequence[ShardFacts]
    batch_sizes: tuple[int, ...]
    shuffle: bool
    seed: int

    @property
    def rows(self) -> int:
        """Rows of this rank."""
        return self.shards[self.rank].rows

    @property
    def steps(self) -> int:
        """Steps of a whole epoch, the same on every rank."""
        return common_steps([shard.rows for shard in self.shards], self.batch_sizes)

    def order(self, epoch: int) -> Rows:
        """Return the canonical rows in the order of this epoch."""
        if not self.shuffle:
            return np.arange(self.rows, dtype=np.int64)
        return epoch_order(self.rows, seed=self.seed, epoch=epoch, rank=self.rank)

    def position(self, segment: "EpochSegment", step: int) -> Position:
        """Return the position after `step` steps of a segment."""
        if step == segment.steps:
            return self.position(self.segment(segment.epoch + 1), 0)
        contents = contents_of(self.shards)
        return Position(
            name=self.name,
            epoch=segment.epoch,
            step=step,
            steps=segment.steps,
            earlier=segment.earlier,
            seed=self.seed,
            shuffle=self.shuffle,
            rows=contents.rows,
            digest=contents.digest,
        )

    def start(self, position: Position | None, *, strict: bool, first_epoch: int = 0) -> "EpochSegment":
        """Return where to start: at the position, or at the start of its epoch if the rows differ."""
        if position is None:
            return self.segment(first_epoch)
        self._check_order(position)
        contents = contents_of(self.shards)
        if position.digest == contents.digest:
            return self._segment_at(position)
        error = contents.changed_from(position.rows, position.digest)
        if strict:
            raise error
        said = f"{error.problem} Epoch {position.epoch} starts again. {error.fix}"
        warnings.warn(said, UserWarning, stacklevel=4)
        return self.segment(position.epoch)

    def segment(self, epoch: int, earlier: tuple[tuple[int, int], ...] = ()) -> "EpochSegment":
        """Return an epoch, or the rest of it after the earlier steps, divided by the present batch sizes."""
        left = [shard.rows - rows_taken(shard.rows, earlier) for shard in self.shards]
        if not any(left) and earlier:
            return self.segment(epoch + 1)
        steps = common_steps(left, self.batch_sizes)
        return EpochSegment(epoch=epoch, earlier=earlier, steps=steps, rows=self.rows)

    def _segment_at(self, position: Position) -> "EpochSegment":
        same = self.segment(position.epoch, position.earlier)
        if same.steps == position.steps:
            return replace(same, done=position.step)
        return self.segment(position.epoch, (*position.earlier, (position.step, position.steps)))

    def _check_order(self, position: Position) -> None:
        for name in ("name", "seed", "shuffle"):
            mine, theirs = getattr(self, name), getattr(position, name)
            if mine != theirs:
                raise ConfigError(
                    f"`start_at` must be a position of the same data in the same order. "
                    f"Received: {name}={mine!r}, and {name}={theirs!r} in the position.",
                    fix=f"Pass {name}={theirs!r}, or leave start_at out.",
                )


@dataclass(frozen=True, kw_only=True)
class EpochSegment:
    """One epoch, or the rest of it, divided into steps.

    Attributes:
        epoch: Its number.
        steps: Number of steps for the rows that the earlier steps left.
        rows: All rows of the shard.
        done: Number of these steps that were taken before.
        earlier: Steps taken before with other batch sizes; see `Position`.
    """

    epoch: int
    steps: int
    rows: int
    done: int = 0
    earlier: tuple[tuple[int, int], ...] = ()

    @property
    def first_row(self) -> int:
        """Where in the epoch's order the steps begin."""
        return rows_taken(self.rows, self.earlier)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the epoch was taken before."""
        return not self.earlier and not self.done

    def bounds(self, first: int, last: int) -> Rows:
        """Return where in the epoch's order the steps `first` to `last` begin and end."""
        return self.first_row + batch_bounds(self.rows - self.first_row, self.steps, first, last)


class Epochs:
    """Yields epochs as windows: arrays, the bounds of their batches, and their tags.

    A tag is the number of a step counted over all epochs, so that the consumer can report what it
    has taken. `windows` is called once for each iteration of the dataset.
    """

    def __init__(
        self,
        plan: EpochPlan,
        start: EpochSegment,
        fetch: Fetch,
        window: int,
        progress: Progress,
    ) -> None:
        self.plan = plan
        self.progress = progress
        self._fetch = fetch
        self._window = window
        self._next = start
        self._first = start
        self._is_over = False

    @property
    def one_batch_windows(self) -> bool:
        """Whether each window is one batch: rows are so wide that it has room for no more."""
        return self._window * self.plan.steps < 2 * max(1, self.plan.rows)

    @property
    def is_short(self) -> bool:
        """Whether the first iteration begins in the middle of an epoch."""
        return not self._first.is_whole

    @property
    def first_tag(self) -> int:
        """The tag before anything was taken."""
        return self._tag(self._first, self._first.done)

    def position(self, tag: int) -> Position:
        """Return the position of a consumer whose last batch had this tag."""
        epoch, step = divmod(tag, 1 << 32)
        segment = self._first if epoch == self._first.epoch else self.plan.segment(epoch)
        return self.plan.position(segment, step)

    def position_after(self, steps: int) -> Position:
        """Return the position after so many steps of all iterations together."""
        left = self._first.steps - self._first.done
        if steps < left:
            return self.plan.position(self._first, self._first.done + steps)
        more, step = divmod(steps - left, self.plan.steps)
        return self.plan.position(self.plan.segment(self._first.epoch + 1 + more), step)

    def windows(self) -> Iterator[tuple[object, ...]]:
        """Yield the windows of the next epoch."""
        if self._is_over:
            # The dataset repeats until it has the batches of a complete epoch; a first epoch that started in the
            # middle has fewer, and an empty repetition ends it.
            self._is_over = False
            return
        segment = self._next
        self._next = self.plan.segment(segment.epoch + 1)
        _log.debug("rank %d starts epoch %d of %s", self.plan.rank, segment.epoch, self.plan.name)
        order = self.plan.order(segment.epoch)
        for first, last in self._spans(segment):
            with self.progress.working():
                bounds = segment.bounds(first, last)
                start, stop = int(bounds[0]), int(bounds[-1])
                arrays = self._fetch(order, start, stop)
                tags = np.array([self._tag(segment, step + 1) for step in range(first, last)], np.int64)
            self.progress.rows += stop - start
            self.progress.bytes += sum(values.nbytes for values in arrays)
            with self.progress.timing("sink"):
                yield (*arrays, bounds - start, tags)
        self._is_over = not segment.is_whole

    def _spans(self, segment: EpochSegment) -> Iterator[tuple[int, int]]:
        """Yield runs of steps whose rows make up a window."""
        rows = max(1, segment.rows - segment.first_row)
        most = 1 if self.one_batch_windows else WINDOW_STEPS
        count = max(1, min(most, self._window * segment.steps // rows))
        for first in range(segment.done, segment.steps, count):
            yield first, min(first + count, segment.steps)

    def _tag(self, segment: EpochSegment, step: int) -> int:
        return (segment.epoch << 32) + step
