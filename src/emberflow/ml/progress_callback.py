"""The progress that the chief reports to the driver while a model trains."""

import threading
import time
from typing import TYPE_CHECKING, Any

import keras

from emberflow._plan import deadlines

if TYPE_CHECKING:
    from emberflow._node.context import Context


class ReportProgress(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports metrics twice per second, for the driver's progress bar, and prints a line after each epoch.

    Rows per second are those of training: the first step, which traces the graph, and validation do not count. It
    never stops the training, so Keras may call it from other threads while the next steps run.
    """

    async_safe = True  # Keras reads it; without it Keras waits for the metrics of each step before the next

    def __init__(self, ctx: "Context", epochs: int, steps: int) -> None:
        super().__init__()
        self._ctx = ctx
        self._epochs = epochs
        self._steps_per_epoch = max(steps, 1)
        self._rows_per_step = ctx.rows("train") * ctx.workers / self._steps_per_epoch
        self._reported = self._last = self._seconds = 0.0
        self._epoch = self._batch = self._steps = 0
        self._lock = threading.Lock()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Start the count of this epoch's steps."""
        self._epoch, self._batch = epoch, -1
        self._last = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Report if the last report is older than the interval."""
        with self._lock:
            if batch <= self._batch:  # the call of a later step was faster
                return
            now = time.monotonic()
            if self._reported:
                self._seconds += now - self._last
                self._steps += batch - self._batch
            self._last, self._batch = now, batch
            if now - self._reported >= deadlines.PROGRESS_INTERVAL:
                self._reported = now
                self._report(self._epoch * self._steps_per_epoch + batch + 1, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Report, and print the metrics of the epoch."""
        self._report((epoch + 1) * self._steps_per_epoch, logs)
        numbers = "  ".join(f"{name} {float(value):.4f}" for name, value in (logs or {}).items())
        print(f"epoch {epoch + 1} of {self._epochs}  {numbers}", flush=True)  # noqa: T201

    def _report(self, step: int, logs: Any) -> None:
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        progress = {
            "progress": min(step / (self._steps_per_epoch * self._epochs), 1.0),
            "epoch": self._epoch + 1,
        }
        if self._steps:
            progress["rows_per_second"] = self._steps * self._rows_per_step / max(self._seconds, 1e-6)
        self._ctx.report(step=step, **{**numbers, **progress})
