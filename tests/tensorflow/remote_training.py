"""A training whose callbacks write to remote storage, for tests on real clusters."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.watching import await_file

if TYPE_CHECKING:
    from emberflow._node.context import Context

EPOCHS = 4
KILLED_IN = 2  # the epoch at whose beginning the chief of the first attempt dies
WITHIN = 60.0


class Train:
    """What each node runs: four epochs with every callback that writes, below a URL.

    Args:
        url: Where the callbacks write.
        dies: Whether the chief is killed in the first attempt.
        gate: A local folder: the chief writes ``begun`` there before an epoch, and waits for ``go``.
    """

    def __init__(self, url: str, *, dies: bool = False, gate: Path | None = None) -> None:
        self.url, self.dies, self.gate = url, dies, gate

    def __call__(self, ctx: "Context") -> dict[str, Any]:
        import keras
        import numpy as np

        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.1), "mse")
        ctx.distribute(model)
        callbacks = keras.callbacks
        faults = [callbacks.LambdaCallback(on_epoch_begin=self._die if self.dies else self._wait)]
        history = model.fit(
            np.arange(16.0).reshape(8, 2) / 16 + ctx.rank,
            np.arange(8.0)[:, None],
            batch_size=4,
            epochs=EPOCHS,
            verbose=0,
            callbacks=[
                callbacks.BackupAndRestore(f"{self.url}/backup"),
                callbacks.CSVLogger(f"{self.url}/log.csv", append=True),
                callbacks.ModelCheckpoint(f"{self.url}/{{epoch:02d}}.keras"),
                callbacks.TensorBoard(f"{self.url}/logs"),
                *(faults if ctx.is_chief and ctx.attempt == 0 else ()),
            ],
        )
        ctx.export(model, f"{self.url}/export/1")
        ctx.save_checkpoint(lambda folder: model.save(folder / "model.keras"), step=EPOCHS)
        assert ctx.latest_checkpoint() is not None or not ctx.is_chief
        note = ctx.mirror(f"{self.url}/notes") / f"{ctx.rank}.txt"
        note.write_text(f"rank {ctx.rank}")
        weights = [weight.tolist() for weight in model.get_weights()]
        return {"epochs": history.epoch, "attempt": ctx.attempt, "weights": weights}

    def _die(self, epoch: int, logs: Any = None) -> None:
        """Kill this process once the state of the epochs before is stored."""
        from emberflow._node.checkpoints import step_of, steps_of

        deadline, pause = time.monotonic() + WITHIN, threading.Event()
        while epoch == KILLED_IN:
            stored = [step_of(version) for version in steps_of(f"{self.url}/backup")]
            if stored == [KILLED_IN] or time.monotonic() > deadline:
                os.kill(os.getpid(), signal.SIGKILL)
            pause.wait(0.1)

    def _wait(self, epoch: int, logs: Any = None) -> None:
        if self.gate is not None and epoch == 1:
            (self.gate / "begun").touch()
            await_file(self.gate / "go")
