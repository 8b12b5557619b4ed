"""A loss that turns NaN: a warning with the step, and the columns and rows that hold NaN or infinite values."""

import logging
import math
import threading
from typing import TYPE_CHECKING, Any

import keras

from emberflow._feed.arrays import find_leaf_columns, leaf_columns
from emberflow._feed.value_checks import rows_not_finite
from emberflow.ml.model_columns import TrainingColumns

if TYPE_CHECKING:
    from emberflow._node.context import Context

log = logging.getLogger("emberflow")


class WarnOfNanLoss(keras.callbacks.Callback):  # type: ignore[misc]
    """Warns once when the loss is NaN or infinite, and searches the rows of this worker for the reason.

    It never stops the training, so Keras may call it from other threads while the next steps run.
    """

    async_safe = True  # Keras reads it; without it Keras waits for the metrics of each step before the next

    def __init__(self, ctx: "Context", columns: TrainingColumns) -> None:
        super().__init__()
        self._ctx = ctx
        self._columns = columns
        self._epoch = 0
        self._is_warned = False
        self._lock = threading.Lock()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Note the epoch."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Look at the loss, until it was NaN once."""
        if not math.isfinite(float((logs or {}).get("loss", 0.0))) and self._is_first():
            self._warn(batch)

    def _is_first(self) -> bool:
        """Tell whether nothing was said yet: the steps that follow have the same loss."""
        with self._lock:
            was_warned, self._is_warned = self._is_warned, True
            return not was_warned

    def _warn(self, batch: int) -> None:
        ctx = self._ctx
        has_rows = ctx._feed is not None and ctx.rows("train") > 0  # noqa: SLF001 - internal to Emberflow
        found = bad_columns(ctx, self._columns) if has_rows else {}
        if ctx.is_chief:
            log.warning(
                "The loss is not a finite number from epoch %d, step %d on.", self._epoch + 1, batch + 1
            )
        for column, rows in found.items():
            log.warning(
                "Column %r has NaN or infinite values in %d of the %d rows of rank %d. "
                "Fix: drop or fill them in Spark, for example with df.na.drop() or Imputer.",
                column,
                rows,
                ctx.rows("train"),
                ctx.rank,
            )
        if ctx.is_chief and not found:
            log.warning(
                "%s Fix: if no worker names a column, lower the learning rate or pass clipnorm=1.0 to the optimizer.",
                f"No row of rank {ctx.rank} has NaN or infinite values."
                if has_rows
                else "The rows are not on this node: look for NaN with df.filter(isnan(...)).",
            )


def bad_columns(ctx: "Context", columns: TrainingColumns) -> dict[str, int]:
    """Return the columns of this worker's rows that hold NaN or infinite values, and in how many rows."""
    leaves = list(leaf_columns(ctx._shards("train").schema))  # noqa: SLF001 - internal to Emberflow
    names = [*columns.features, *columns.labels, *([columns.weight] if columns.weight else [])]
    wanted = [leaf for name in dict.fromkeys(names) for leaf in find_leaf_columns(leaves, name)]
    counts = {leaf.name: rows_not_finite(ctx.arrow("train"), leaf) for leaf in wanted}
    return {name: rows for name, rows in counts.items() if rows}
