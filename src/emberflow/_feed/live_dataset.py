"""`tf.data.Dataset` over rows that arrive while they are trained on: batches are as large as what is there allows."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from emberflow._feed.dataset import DatasetOptions, choose_columns
from emberflow._feed.padding import check_known_longest
from emberflow._feed.pipeline import ConsumedTag, make_batches
from emberflow._feed.row_windows import flat_arrays_of_batch, group_columns
from emberflow._feed.shard_facts import ShardFacts, observe
from emberflow._feed.shards import merge_shards
from emberflow._feed.tensor_columns import check_fit
from emberflow.config import check_count

WINDOW_ROWS = (
    4096  # rows that are made tensors together; more would wait for longer before they are trained on
)

Take = Callable[[int], Any]
"""Returns up to so many rows as a record batch: those that are there, or the next that come; None at the end."""


def make_live_dataset(name: str, first: Any, take: Take, options: DatasetOptions) -> Any:
    """Return a dataset of one pass, in the order of arrival.

    Args:
        name: The stream's name.
        first: The first rows, from which the tensors are planned; later ones must fit.
        take: Takes the rows after them.
        options: Of the dataset.
    """
    size = options.batch_size
    check_count("batch_size", size)
    assert size is not None  # noqa: S101 - for the type checker
    check_known_longest(options.pad)
    facts = merge_shards([ShardFacts(rows=first.num_rows, schema=first.schema, columns=observe(first))], name)
    columns, arrange = choose_columns(facts, options)
    groups = group_columns(columns)
    window = max(1, WINDOW_ROWS // size) * size
    held = [first]

    def windows() -> Iterator[tuple[object, ...]]:
        while (rows := held.pop() if held else take(window)) is not None:
            seen = observe(rows)
            for column in columns:
                check_fit(column, seen[column.name], 0)
            arrays = flat_arrays_of_batch(groups, rows)
            bounds = np.append(np.arange(0, rows.num_rows, size, dtype=np.int64), rows.num_rows)
            yield (*arrays, bounds, np.zeros(len(bounds) - 1, np.int64))

    return make_batches(windows, groups, arrange, ConsumedTag(0), None)
