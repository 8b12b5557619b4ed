"""All named data of one node, as the node's context uses it."""

from collections.abc import Iterator, Mapping
from typing import Any

from emberflow._feed.arrays import RESERVED
from emberflow._feed.dataset import DatasetOptions, Shard, TrackedDataset, make_dataset
from emberflow._feed.feed_progress import Progress
from emberflow._feed.pipeline import first_gpu, place_ahead
from emberflow._feed.position import Contents, Position, contents_of
from emberflow._feed.shards import Shards
from emberflow._feed.stream import Stream, StreamDataset, make_stream_dataset
from emberflow.errors import ConfigError, DataError


class Feed:
    """The rows of a node by the name of their data."""

    def __init__(self, data: Mapping[str, Shard | Stream]) -> None:
        self._data = dict(data)
        self._datasets: dict[str, TrackedDataset | StreamDataset] = {}
        self._read_ahead: dict[str, bool] = {}
        self._progress = {name: Progress() for name in data}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the data."""
        return tuple(self._data)

    def dataset(self, name: str, options: DatasetOptions) -> Any:
        """Return a `tf.data.Dataset` of whole batches; see `make_dataset`."""
        data = self._find(name)
        progress = self._progress[name]
        if isinstance(data, Shard):
            self._datasets[name] = make_dataset(data, options, progress)
        else:
            self._datasets[name] = make_stream_dataset(data, options, progress)
        dataset = self._datasets[name].dataset
        device = first_gpu() if options.on_device else None
        self._read_ahead[name] = device is not None
        if device is None:
            return dataset
        ranks = 1 if options.alone else len(data.facts.each)
        return place_ahead(dataset, device, options.batch_size or (options.global_batch_size or 1) // ranks)

    def position(self, name: str, steps: int | None = None) -> Position:
        """Return the position of the consumer of the last dataset of this name; see `TrackedDataset.position`."""
        self._find(name)
        if name not in self._datasets:
            raise ConfigError(
                f"A position needs a dataset. Received: name={name!r}, which has none yet.",
                fix="Call ctx.dataset() first.",
            )
        if steps is None and self._read_ahead[name]:
            raise ConfigError(
                "The position of a dataset whose batches are placed on the GPU ahead of the step needs the number of "
                f"steps trained. Received: steps=None, on_device=True in the dataset of {name!r}.",
                fix="Pass ctx.position(steps=...), the steps trained since ctx.dataset(), or leave on_device out.",
            )
        return self._datasets[name].position(steps)

    def rows(self, name: str) -> int:
        """Return how many rows this node holds."""
        data = self._find(name)
        if isinstance(data, Shard):
            return data.spool.rows
        raise DataError(
            f"Rows that are not kept cannot be counted in advance. Received: name={name!r} with cache=False.",
            fix="Leave cache=False out.",
        )

    def contents(self, name: str) -> Contents:
        """Return the count and digest of all nodes' rows, to decide whether a later attempt has the same rows."""
        data = self._find(name)
        return contents_of(data.facts.each if isinstance(data, Shard) else ())

    def shards(self, name: str) -> Shards:
        """Return what is known of the rows of all nodes."""
        return self._find(name).facts

    def arrow(self, name: str) -> Iterator[Any]:
        """Yield this node's rows as record batches, in the order of arrival."""
        data = self._find(name)
        if isinstance(data, Shard):
            yield from data.spool.batches()
            return
        for batch in data.batches:
            yield batch.select([column for column in batch.schema.names if not column.startswith(RESERVED)])

    def progress(self) -> dict[str, dict[str, float | int | str]]:
        """Return the counters of each name."""
        return {name: progress.as_dict() for name, progress in self._progress.items()}

    def _find(self, name: str) -> Shard | Stream:
        if name not in self._data:
            raise ConfigError(
                f"`name` must be one of the names in data=. Received: name={name!r}; "
                f"there are: {', '.join(self._data) or 'none'}.",
                fix='Pass data={"train": df} to emberflow.run, and use its names.',
            )
        return self._data[name]
