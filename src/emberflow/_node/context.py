"""`ctx`: what your function sees of the cluster."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberflow._choices import WireDtype
from emberflow._node.checkpoints import Checkpoint, Checkpoints, absent_checkpoints
from emberflow._node.live_context import LiveContext
from emberflow._node.mirror import Mirror
from emberflow._node.row_access import RowAccess
from emberflow._node.serving import Serving
from emberflow._node.storage_access import StorageAccess
from emberflow._node.strategy_services import StrategyServices
from emberflow._plan.path_rules import PathRules
from emberflow._plan.tf_config import ClusterSpec, TFConfig
from emberflow._protocol.codec import Message
from emberflow._protocol.outcome import MetricReport
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from emberflow._feed.feed import Feed
    from emberflow._node.live_feeds import LiveFeeds


@dataclass(frozen=True, kw_only=True)
class Context(Serving, RowAccess, LiveContext, StorageAccess):
    """One node's view of the run, given to your function.

    Attributes:
        rank: Global number of this node, from 0; the chief is 0.
        role: "chief", "worker", "ps" or "evaluator"; without Spark also "dispatcher" or "data-worker".
        index: Number within the role.
        workers: How many nodes train, the chief included.
        ps: How many parameter servers there are.
        attempt: 0, and one more each time all nodes were started again.
        cluster_spec: Job name to addresses, as ``tf.train.ClusterSpec`` takes it.
        tf_config: What TF_CONFIG holds here.
        devices: Accelerators of this node, empty on a CPU node.
        work_dir: A local folder of this attempt on this node, deleted afterwards.
        checkpoint_dir: The shared folder you gave for checkpoints, or None.
    """

    rank: int
    role: str
    index: int
    workers: int
    ps: int
    attempt: int
    cluster_spec: ClusterSpec
    tf_config: TFConfig
    devices: tuple[str, ...]
    work_dir: Path
    checkpoint_dir: str | None
    _checkpoints: Checkpoints | None = field(repr=False)
    _services: StrategyServices = field(repr=False)
    _mirror: Mirror = field(repr=False)
    _paths: PathRules = field(default_factory=PathRules, repr=False)
    _is_asynchronous: bool = field(default=False, repr=False)
    _allows_tf_servers: bool = field(default=True, repr=False)
    _dispatchers: tuple[str, ...] = field(default=(), repr=False)
    _feed: "Feed | None" = field(default=None, repr=False)
    _live: "LiveFeeds | None" = field(default=None, repr=False)
    _over: threading.Event = field(repr=False)
    _send: Callable[[Message], None] = field(repr=False)
    _started: float = field(default_factory=time.monotonic, repr=False)

    def report(self, *, step: int | None = None, **metrics: float) -> None:
        """Send numbers to the driver now: they show in its progress and in ``result.metrics``.

        Args:
            step: The step they belong to.
            **metrics: Name to number; anything that ``float()`` takes, tensors too.
        """
        try:
            values = {name: float(value) for name, value in metrics.items()}
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"ctx.report takes numbers. Received: {metrics!r}.",
                fix="Pass each metric as a number, such as ctx.report(step=3, loss=0.25).",
            ) from error
        number = None if step is None else int(step)
        self._send(MetricReport(values, number, time.monotonic() - self._started))

    def _rows_of(self, name: str) -> "Feed":
        if self._feed is None:
            raise ConfigError(
                f"This node has no rows. Received: name={name!r}, role={self.role!r}.",
                fix="Pass data=df to ef.run, and ask for rows on chief and workers only.",
            )
        return self._feed

    @property
    def is_over(self) -> bool:
        """Whether chief and workers are done: an evaluator's loop ends then."""
        return self._over.is_set()

    def wait_until_over(self, timeout: float | None = None) -> bool:
        """Wait until chief and workers are done, at most `timeout` seconds; tell whether they are."""
        return self._over.wait(timeout)

    def save_checkpoint(self, write: Callable[[Path], object], *, step: int) -> str | None:
        """Save a checkpoint atomically; only the chief's call does.

        Args:
            write: Called with an empty local folder to fill, such as
                ``lambda folder: model.save(folder / "model.keras")``.
            step: The step that it belongs to; the newest is what `latest_checkpoint` finds.

        Returns:
            Where it is kept, or None on other nodes.
        """
        if self._checkpoints is None:
            raise absent_checkpoints()
        return self._checkpoints.save(write, step)

    def latest_checkpoint(self) -> Checkpoint | None:
        """Return the newest complete checkpoint, of this attempt or of an earlier one, or None.

        At the start of an attempt all nodes get the same answer.
        """
        if self._checkpoints is None:
            raise absent_checkpoints()
        return self._checkpoints.latest()

    def distribute(
        self,
        model: Any,
        *,
        seed: int | None = None,
        exact: bool = True,
        wire_dtype: WireDtype = "float32",
    ) -> Any:
        """Train a Keras 3 model on all workers at once: its ``fit`` then gives what one process would give.

        Call it on every worker with the same model, compiled or not, and then `fit`, `evaluate` and `predict` as
        ever: gradients, losses and metrics are those of all workers' rows together. Batches are per worker and
        may be uneven or empty. `predict` stays local. ModelCheckpoint, BackupAndRestore, CSVLogger and TensorBoard
        may have remote paths, such as ``s3://bucket/best.keras``.

        Args:
            model: A Keras model; it is changed in place and returned.
            seed: Seeds Dropout and the like, differently on each worker.
            exact: Refuse losses and metrics that are neither means nor sums over rows, and stateful RNNs: their
                results differ from those of one process. False takes such losses for means, such metrics for sums.
            wire_dtype: As what gradients travel between hosts. "bfloat16" takes half of the bytes; what rounding
                drops is added in the next step. Results are then close to those of one process, not equal; all
                workers have the same bits. For transport="ring".

        Raises:
            ConfigError: The workers have several GPUs each, of which all but one would be idle; or the transport has
                no such `wire_dtype`.
            ModelError: The model cannot be trained exactly on many workers; the message says what to change.
        """
        if (gpus := len(self.devices)) > 1:
            raise ConfigError(
                "ctx.distribute trains on one GPU of each worker; the others would be idle. "
                f"Received: workers={self.workers}, gpus={gpus}.",
                fix=f"Pass workers={self.workers * gpus}, gpus=1 to ef.run.",
            )
        from emberflow._node.mirrored_callbacks import mirror_model_fit
        from emberflow.strategies.data_parallel.distribute import distribute

        mirror_model_fit(model, self._mirror, writes=self.is_chief)
        transport = self._services.parallel.transport()
        return distribute(model, transport, seed=seed, exact=exact, wire_dtype=wire_dtype)
