"""What the chief tells the driver while a model trains."""

import threading
import time
from typing import TYPE_CHECKING, Any

import keras

from emberflow._plan import deadlines

if TYPE_CHECKING:
    from emberflow._node.context import Context


class ReportProgress(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports numbers twice a second, for the driver's bar, and prints a line after each epoch.

    The speed is that of training: the first call, which traces, and validation do not count. It never stops the
    training, so Keras may call it from other threads while the next steps run.
    """

    async_safe = True  # Keras' own attribute: else it waits for the numbers of each step before the next

    def __init__(self, ctx: "Context", epochs: int, steps: int) -> None:
        super().__init__()
        self._ctx = ctx
        self._epochs = epochs
        self._steps_an_epoch = max(steps, 1)
        self._rows_a_step = ctx.rows("train") * ctx.workers / self._steps_an_epoch
        self._said = self._last = self._seconds = 0.0
        self._epoch = self._batch = self._steps = 0
        self._lock = threading.Lock()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Remember which epoch it is."""
        self._epoch, self._batch = epoch, -1
        self._last = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Report if the last report is long enough ago."""
        with self._lock:
            if batch <= self._batch:  # a later call was quicker
                return
            now = time.monotonic()
            if self._said:
                self._seconds += now - self._last
                self._steps += batch - self._batch
            self._last, self._batch = now, batch
            if now - self._said >= deadlines.PROGRESS_INTERVAL:
                self._said = now
                self._report(self._epoch * self._steps_an_epoch + batch + 1, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Report, and say what the epoch brought."""
        self._report((epoch + 1) * self._steps_an_epoch, logs)
        numbers = "  ".join(f"{name} {float(value):.4f}" for name, value in (logs or {}).items())
        print(f"epoch {epoch + 1} of {self._epochs}  {numbers}", flush=True)  # noqa: T201

    def _report(self, step: int, logs: Any) -> None:
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        known = {"progress": min(step / (self._steps_an_epoch * self._epochs), 1.0), "epoch": self._epoch + 1}
        if self._steps:
            known["rows_per_second"] = self._steps * self._rows_a_step / max(self._seconds, 1e-6)
        self._ctx.report(step=step, **{**numbers, **known})
