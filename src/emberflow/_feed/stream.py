"""A single pass over rows as they arrive, without a spool: for shards that are larger than the disk.

The number of rows is not known in advance, so the ranks agree while they train: before each window a rank reports how
many steps it can fill, and all take the largest number reported. A rank whose rows have ended takes empty steps until
all have ended.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow._feed.arrow_to_numpy import FlatArrays
from emberflow._feed.dataset import DatasetOptions, choose_columns
from emberflow._feed.feed_progress import Progress, timed
from emberflow._feed.padding import check_known_longest
from emberflow._feed.pipeline import ConsumedTag, make_batches
from emberflow._feed.position import Position
from emberflow._feed.row_windows import TensorGroup, flat_arrays_of_batch, group_columns
from emberflow._feed.shard_facts import ShardFacts, observe
from emberflow._feed.shards import Shards
from emberflow._feed.tensor_columns import Column, check_fit
from emberflow._plan.steps import batch_shares
from emberflow.errors import ConfigError, DataError

WINDOW_ROWS = 512  # between two agreements of the ranks, which cost a round trip; more rows take more memory

MostSteps = Callable[[int], int]
"""Reports to all ranks how many steps this one can fill; returns the largest number of any rank.

Each rank calls it equally often, in the same order; it waits for the others, with its own deadline.
"""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The rows of this rank, which have not arrived yet.

    Attributes:
        name: The data's name.
        rank: This rank's number among the ranks that hold rows.
        batches: Its rows; read once.
        facts: Facts of the first batches of all these ranks (`first_facts`).
        most_steps: How the ranks agree; None for a single rank.
    """

    name: str
    rank: int
    batches: Iterable[Any]
    facts: Shards
    most_steps: MostSteps | None = None


@dataclass(frozen=True, kw_only=True)
class StreamDataset:
    """A dataset over a stream: it can be iterated once, and has no position."""

    dataset: Any

    def position(self, steps: int | None = None) -> Position:
        """Raise an error: rows arrive in another order each time."""
        raise DataError(
            f"A position needs the spool. Received: cache=False, steps={steps!r}.",
            fix="Leave cache=False out to resume in the middle of an epoch.",
        )


def first_facts(batches: Iterable[Any]) -> tuple[ShardFacts, Iterator[Any]]:
    """Return the facts of the first batch that has rows, and all batches."""
    source = iter(batches)
    held = []
    for batch in source:
        held.append(batch)
        if batch.num_rows:
            break
    if not held:
        return ShardFacts(), source
    facts = ShardFacts(rows=held[-1].num_rows, schema=held[-1].schema, columns=observe(held[-1]))
    return facts, chain(held, source)


def make_stream_dataset(
    stream: Stream, options: DatasetOptions, progress: Progress | None = None
) -> StreamDataset:
    """Return a dataset of one pass over a stream, in the order of arrival."""
    if options.start_at is not None:
        raise ConfigError(
            f"`start_at` needs the spool. Received: start_at={options.start_at!r} with cache=False.",
            fix="Leave cache=False out, or leave start_at out and begin again.",
        )
    check_known_longest(options.pad)
    columns, arrange = choose_columns(stream.facts, options)
    sizes = batch_shares(
        len(stream.facts.each), batch_size=options.batch_size, global_batch_size=options.global_batch_size
    )
    groups = group_columns(columns)
    windows = StreamWindows(stream, groups, columns, sizes, progress or Progress())
    return StreamDataset(dataset=make_batches(windows, groups, arrange, ConsumedTag(0), None))


def cut_batches(batches: Iterable[Any], size: int) -> Iterator[Any]:
    """Yield the rows in batches of `size` rows, the last one smaller."""
    held: list[Any] = []
    rows = 0
    for batch in batches:
        start = 0
        while rows + batch.num_rows - start >= size:
            piece = batch.slice(start, size - rows)
            start += piece.num_rows
            yield pa.concat_batches([*held, piece]) if held else piece
            held, rows = [], 0
        if start < batch.num_rows:
            held.append(batch.slice(start))
            rows += batch.num_rows - start
    if held:
        yield pa.concat_batches(held)


class StreamWindows:
    """Yields windows of some steps; see `Epochs.windows`."""

    def __init__(
        self,
        stream: Stream,
        groups: Sequence[TensorGroup],
        columns: Sequence[Column],
        sizes: Sequence[int],
        progress: Progress,
    ) -> None:
        self._stream = stream
        self._groups = groups
        self._columns = columns
        self._size = sizes[stream.rank]
        self._steps = max(
            1, WINDOW_ROWS // max(sizes)
        )  # by the largest size, so that it is the same on every rank
        self._progress = progress
        self._is_read = False
        self._no_rows = pa.RecordBatch.from_pylist([], schema=stream.facts.schema)

    def __call__(self) -> Iterator[tuple[object, ...]]:
        if self._is_read:
            raise DataError(
                "Rows that are not kept can be read once. "
                f"Received: a second pass over {self._stream.name!r}.",
                fix="Train with epochs=1, or leave cache=False out to keep the rows on local disk.",
            )
        self._is_read = True
        progress = self._progress
        source = cut_batches(timed(self._stream.batches, progress), self._size)
        while True:
            batches = list(islice(source, self._steps))
            steps = len(batches)
            if self._stream.most_steps is not None:
                with progress.timing("sink"):  # all wait for the slowest rank
                    steps = self._stream.most_steps(len(batches))
            if not steps:
                return
            with progress.working():
                arrays = self._flat_arrays(pa.concat_batches(batches) if batches else self._no_rows)
                sizes = [batch.num_rows for batch in batches] + [0] * (steps - len(batches))
                bounds = np.cumsum([0, *sizes], dtype=np.int64)
            progress.rows += int(bounds[-1])
            progress.bytes += sum(values.nbytes for values in arrays)
            with progress.timing("sink"):
                yield (*arrays, bounds, np.zeros(steps, np.int64))

    def _flat_arrays(self, rows: Any) -> FlatArrays:
        seen = observe(rows)
        for column in self._columns:
            check_fit(column, seen[column.name], self._stream.rank)
        return flat_arrays_of_batch(self._groups, rows)
