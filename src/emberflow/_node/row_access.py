"""The rows of a node as your function reads them: what ``ctx`` and a round of a live cluster have in common."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from emberflow._names import names_checked

if TYPE_CHECKING:
    from emberflow._feed.dataset import Names
    from emberflow._feed.feed import Feed
    from emberflow._feed.padding import PadTo
    from emberflow._feed.position import Contents, Position
    from emberflow._feed.shards import Shards


class RowAccess:
    """Datasets, positions and record batches of the rows that this node holds."""

    _is_asynchronous: bool
    _first_epoch = 0  # the number of the first epoch of a dataset: its order follows from it

    def _rows_of(self, name: str) -> "Feed":
        """Return what holds the rows of this name, or raise why there are none."""
        raise NotImplementedError

    @names_checked
    def dataset(
        self,
        name: str = "train",
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        features: "Names | None" = None,
        label: "Names | None" = None,
        weight: str | None = None,
        columns: Sequence[str] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        start_at: "Position | None" = None,
        strict_resume: bool = False,
        shapes: "Mapping[str, Any] | None" = None,
        dtypes: Mapping[str, Any] | None = None,
        null_value: Mapping[str, Any] | None = None,
        pad_to: "Mapping[str, PadTo] | None" = None,
        pad_value: Mapping[str, Any] | None = None,
        on_device: bool = False,
    ) -> Any:
        """Return this worker's rows as a ``tf.data.Dataset`` of whole batches.

        One iteration is one epoch: each row of the data exactly once over all workers, the same number of steps
        on each, the next iteration in the next order. So ``model.fit(ds, epochs=3)`` does what it says. With an
        asynchronous strategy each worker takes as many steps as its own rows make, and a worker may have none.

        Args:
            name: Which of the run's data.
            batch_size: Rows in one step of one worker. Sizes differ by at most one row, so that all workers
                take equally many steps; a shard with fewer rows than steps has empty batches.
            global_batch_size: Rows in one step of all workers together; instead of `batch_size`.
            features: A column (one tensor), several (a dict by column), or a dict from the name that the model
                expects to the column. With it, batches are tuples ``(features, label[, weight])``.
            label: Likewise.
            weight: The column of sample weights.
            columns: Without `features`: the columns of the dict that a batch is; None takes all.
            shuffle: Whether each epoch has its own order, from `seed`.
            seed: The same seed and rows give the same orders in every run.
            start_at: Where an earlier attempt stood, from `position`: continue at that very row.
            strict_resume: Refuse to start when the rows are not those that `start_at` was taken on; else the
                epoch begins anew, with a warning.
            shapes: Dense dimensions of one row, by column.
            dtypes: Dtype by column; for a binary column, the dtype of the numbers in it.
            null_value: What stands for null, by column.
            pad_to: Makes arrays of any length a dense tensor, by column: a length, "longest" (of all workers' rows),
                or "batch" (of each batch; workers then differ). Without it the tensor is ragged. A row that is
                longer than the length is an error.
            pad_value: What is added at the end, by column; 0 or an empty string if left out.
            on_device: Place batches on this node's GPU ahead of the step; without a GPU it changes nothing. The
                dataset must then be used as it is, without another transformation, and `position` needs `steps`.
        """
        from emberflow._feed.dataset import DatasetOptions
        from emberflow._feed.padding import PadOptions

        options = DatasetOptions(
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            features=features,
            label=label,
            weight=weight,
            columns=columns,
            shuffle=shuffle,
            seed=seed,
            start_at=start_at,
            strict_resume=strict_resume,
            shapes=shapes or {},
            dtypes=dtypes or {},
            null_value=null_value or {},
            pad=PadOptions(pad_to=pad_to or {}, pad_value=pad_value or {}),
            alone=self._is_asynchronous,
            first_epoch=self._first_epoch,
            on_device=on_device,
        )
        return self._rows_of(name).dataset(name, options)

    def position(self, name: str = "train", *, steps: int | None = None) -> "Position":
        """Return where training stands in the last dataset of this name, to be passed as ``start_at`` later.

        Args:
            name: Which of the run's data.
            steps: Steps trained since that dataset was made, where something reads ahead of the training.
        """
        return self._rows_of(name).position(name, steps)

    def rows(self, name: str = "train") -> int:
        """Return how many rows of this data this worker holds."""
        return self._rows_of(name).rows(name)

    def _contents(self, name: str = "train") -> "Contents":
        """Return what all workers hold together of this data."""
        return self._rows_of(name).contents(name)

    def _shards(self, name: str = "train") -> "Shards":
        """Return what is known of the rows of all workers."""
        return self._rows_of(name).shards(name)

    def arrow(self, name: str = "train") -> "Iterator[Any]":
        """Yield this worker's rows as Arrow record batches, in the order in which they came."""
        return self._rows_of(name).arrow(name)
