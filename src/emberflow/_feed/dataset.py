"""`tf.data.Dataset` over one shard: what ``ctx.dataset`` returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emberflow._feed.arrays import find_leaf_columns, leaf_columns
from emberflow._feed.epochs import EpochPlan, Epochs
from emberflow._feed.feed_progress import Progress
from emberflow._feed.padding import PadOptions
from emberflow._feed.pipeline import Arrange, ConsumedTag, make_batches
from emberflow._feed.position import Position
from emberflow._feed.row_windows import group_columns, window_rows
from emberflow._feed.shards import Shards
from emberflow._feed.spool import Spool
from emberflow._feed.staged_rows import fetch_from
from emberflow._feed.tensor_columns import Column, ColumnOptions, Shape, plan_columns
from emberflow._plan.steps import batch_shares
from emberflow.config import check_count
from emberflow.errors import ConfigError, DataError

Names = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The rows of this rank, and the facts of all ranks' rows.

    Attributes:
        name: The data's name, such as ``train``.
        rank: This rank's number among the ranks that hold rows.
        spool: Its rows.
        facts: What is known of the shards of all these ranks.
    """

    name: str
    rank: int
    spool: Spool
    facts: Shards


@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """The arguments of ``ctx.dataset``.

    Attributes:
        batch_size: Rows in one step of one worker.
        global_batch_size: Rows in one step of all workers together; instead of `batch_size`.
        features: A column (one tensor), several (a dict by column), or a dict from the name that the
            model expects to the column. With it, batches are tuples ``(features, label[, weight])``.
        label: Likewise; a column, or several for a model with several outputs.
        weight: The column of sample weights.
        columns: Without `features`: the columns of a batch, which is a dict; None for all.
        shuffle: Whether each epoch has its own order. Otherwise rows are in their canonical order.
        seed: Seed of the orders: the same seed and rows result in the same orders in every run.
        start_at: The position at which to resume.
        strict_resume: Raise an error when the rows differ from those that `start_at` was recorded on;
            otherwise the epoch starts again, with a warning.
        shapes: Dense dimensions of one row, by column; None in front for a ragged one.
        dtypes: Dtype by column; for a binary column, the dtype of the numbers in it.
        null_value: The value in place of null, by column.
        pad: How arrays of any length are padded, by column.
        alone: Whether the number of steps follows from this rank's rows only.
        first_epoch: The number of the first iteration's epoch, from which its order follows, without `start_at`.
        on_device: Whether batches are placed on the GPU ahead of the step, where there is one.
    """

    batch_size: int | None = None
    global_batch_size: int | None = None
    features: Names | None = None
    label: Names | None = None
    weight: str | None = None
    columns: Sequence[str] | None = None
    shuffle: bool = True
    seed: int = 0
    start_at: Position | None = None
    strict_resume: bool = False
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    null_value: Mapping[str, Any] = field(default_factory=dict)
    pad: PadOptions = field(default_factory=PadOptions)
    alone: bool = False
    first_epoch: int = 0
    on_device: bool = False

    def __post_init__(self) -> None:
        if self.features is None and (self.label is not None or self.weight is not None):
            raise ConfigError(
                f"`label` and `weight` need `features`. Received: label={self.label!r}, "
                f"weight={self.weight!r}, features=None.",
                fix='Pass features="column" or features=["a", "b"] too.',
            )
        if self.weight is not None and self.label is None:
            raise ConfigError(
                f"`weight` needs `label`. Received: weight={self.weight!r}, label=None.",
                fix='Pass label="column" too.',
            )
        if self.features is not None and self.columns is not None:
            raise ConfigError(
                f"`columns` and `features` exclude each other. Received: columns={self.columns!r}, "
                f"features={self.features!r}.",
                fix="Leave columns out: features, label and weight say what is read.",
            )
        if isinstance(self.columns, str):
            raise ConfigError(
                f"`columns` must be a list of names. Received: columns={self.columns!r}.",
                fix=f'Pass columns=["{self.columns}"].',
            )
        check_count("seed", self.seed, least=0)


@dataclass(frozen=True, kw_only=True)
class TrackedDataset:
    """A dataset, and the position of its consumer.

    Attributes:
        dataset: The `tf.data.Dataset`.
        epochs: The order of its rows; None where there are none.
        consumed: The tag of the last batch that its consumer took.
    """

    dataset: Any
    epochs: Epochs | None
    consumed: ConsumedTag

    def position(self, steps: int | None = None) -> Position:
        """Return the position of the dataset's consumer.

        Batches that were read ahead are not counted, unless something reads ahead after this dataset: a
        `prefetch` or a parallel `map` that you add, or a strategy that fetches to a device. In that case pass the
        number of `steps` trained since the dataset was made, over all its iterations.
        """
        if self.epochs is None:
            raise DataError(
                "A position needs rows. Received: a shard without rows.",
                fix="Check ctx.rows() first, and train only where it is not 0.",
            )
        if steps is not None:
            return self.epochs.position_after(steps)
        return self.epochs.position(self.consumed.value())


def make_dataset(shard: Shard, options: DatasetOptions, progress: Progress | None = None) -> TrackedDataset:
    """Return a dataset of whole batches over a shard.

    One iteration is one epoch, and each iteration has its own order. An iteration starts when its first batch
    is requested. All ranks have the same number of steps; a rank with few rows has empty batches among them.
    """
    columns, arrange = choose_columns(shard.facts, options)
    groups = group_columns(columns)
    if options.alone and not shard.spool.rows:
        consumed = ConsumedTag(0)
        nothing = make_batches(lambda: iter(()), groups, arrange, consumed, 0)
        return TrackedDataset(dataset=nothing, epochs=None, consumed=consumed)
    sizes = batch_shares(
        len(shard.facts.each), batch_size=options.batch_size, global_batch_size=options.global_batch_size
    )
    mine = slice(shard.rank, shard.rank + 1) if options.alone else slice(None)
    plan = EpochPlan(
        name=shard.name,
        rank=0 if options.alone else shard.rank,
        shards=shard.facts.each[mine],
        batch_sizes=sizes[mine],
        shuffle=options.shuffle,
        seed=options.seed,
    )
    epochs = Epochs(
        plan,
        plan.start(options.start_at, strict=options.strict_resume, first_epoch=options.first_epoch),
        fetch_from(shard.spool, groups),
        window_rows(shard.spool, columns),
        progress or Progress(),
    )
    consumed = ConsumedTag(epochs.first_tag)
    return TrackedDataset(
        dataset=make_batches(
            epochs.windows, groups, arrange, consumed, plan.steps, one_batch_windows=epochs.one_batch_windows
        ),
        epochs=epochs,
        consumed=consumed,
    )


def choose_columns(facts: Shards, options: DatasetOptions) -> tuple[list[Column], Arrange]:
    """Return the columns that a dataset reads, and how their tensors are laid out in a batch."""
    column_options = ColumnOptions(
        shapes=options.shapes, dtypes=options.dtypes, null_value=options.null_value, pad=options.pad
    )
    leaves = list(leaf_columns(facts.schema))
    if options.features is None:
        plans = plan_columns(facts, column_options, options.columns)
        return list(plans.values()), dict
    groups = [group for group in (options.features, options.label, options.weight) if group is not None]
    layouts = [_layout(group, leaves) for group in groups]
    names = dict.fromkeys(name for layout in layouts for name in _names(layout))
    columns = list(plan_columns(facts, column_options, names).values())
    if len(layouts) == 1:
        return columns, lambda batch: _laid_out(layouts[0], batch)
    return columns, lambda batch: tuple(_laid_out(layout, batch) for layout in layouts)


Layout = str | dict[str, str]


def _layout(group: Names, leaves: list[Any]) -> Layout:
    """Return a leaf's name for one tensor, or names of tensors to leaves' names for a dict of them."""
    if isinstance(group, Mapping):
        return {name: find_leaf_columns(leaves, column)[0].name for name, column in group.items()}
    if not isinstance(group, str):
        return {leaf.name: leaf.name for column in group for leaf in find_leaf_columns(leaves, column)}
    found = find_leaf_columns(leaves, group)
    if [leaf.name for leaf in found] == [group]:
        return group
    return {leaf.name: leaf.name for leaf in found}


def _names(layout: Layout) -> list[str]:
    return [layout] if isinstance(layout, str) else list(layout.values())


def _laid_out(layout: Layout, batch: dict[str, Any]) -> Any:
    if isinstance(layout, str):
        return batch[layout]
    return {name: batch[column] for name, column in layout.items()}
