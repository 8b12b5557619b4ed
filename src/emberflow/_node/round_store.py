"""The model of a stream on a node: restored before the first round, stored by the chief after each."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from emberflow import storage
from emberflow._node.checkpoints import put_checkpoint
from emberflow._protocol.live_messages import RoundReady
from emberflow.errors import ConfigError


class RoundStore:
    """Where the model of one round comes from and goes to; rounds of ``cluster.train`` have neither.

    Args:
        message: What the driver said of the round.
        work_dir: The node's local folder, for copies.
        is_chief: Whether this node stores.
    """

    def __init__(self, message: RoundReady, work_dir: Path, *, is_chief: bool) -> None:
        self._message = message
        self._work_dir = work_dir
        self._is_chief = is_chief
        self._copy: Path | None = None
        self._is_restored = False
        self._is_stored = False

    @property
    def exports(self) -> bool:
        """Whether a version of the model is to be published after this round."""
        return self._message.exports

    def checkpoint(self) -> Path | None:
        """Return a local folder with what was stored last, if your function must restore it."""
        self._is_restored = True
        url = self._message.resume_from
        if not url:
            return None
        if storage.is_local(url):
            return Path(storage.file_system(url)[1])
        if self._copy is None:
            self._copy = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=self._work_dir))
            storage.get_folder(url, self._copy)
        return self._copy

    def save(self, write: Callable[[Path], object]) -> None:
        """Store what `write(folder)` writes, on the chief."""
        self._is_stored = True
        if self._is_chief and self._message.store_to:
            put_checkpoint(write, self._message.store_to, self._work_dir)

    def close(self) -> None:
        """Refuse a round that leaves the stream's model behind, and delete copies."""
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)
        if self._message.resume_from and not self._is_restored:
            raise ConfigError(
                "A stream that continues must begin with the model that was stored. Received: a function that did "
                f"not look at round.checkpoint in round {self._message.number}.",
                fix="Begin each round with: if round.checkpoint: model.load_weights(round.checkpoint / ...).",
            )
        if self._message.store_to and not self._is_stored:
            raise ConfigError(
                "The model must be stored after each micro-batch of a stream. Received: a function that did not call "
                f"round.save_checkpoint in round {self._message.number}.",
                fix="End each round with: round.save_checkpoint(lambda folder: model.save_weights(folder / ...)).",
            )
