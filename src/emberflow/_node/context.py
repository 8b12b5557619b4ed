"""`ctx`: what your function sees of the cluster."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emberflow._plan.tf_config import ClusterSpec, TFConfig
from emberflow.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Context:
    """One node's view of the run, given to your function.

    Attributes:
        rank: Global number of this node, from 0; the chief is 0.
        role: "chief", "worker", "ps" or "evaluator".
        index: Number within the role.
        workers: How many nodes train, the chief included.
        attempt: 0, and one more each time the whole gang was started again.
        cluster_spec: Job name to addresses, as ``tf.train.ClusterSpec`` takes it.
        tf_config: What TF_CONFIG holds here.
        devices: Accelerators of this node, empty on a CPU node.
        work_dir: A local folder of this attempt on this node, deleted afterwards.
    """

    rank: int
    role: str
    index: int
    workers: int
    attempt: int
    cluster_spec: ClusterSpec
    tf_config: TFConfig
    devices: tuple[str, ...]
    work_dir: Path
    _send: Callable[[dict[str, Any]], None] = field(repr=False)
    _started: float = field(default_factory=time.monotonic, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def is_chief(self) -> bool:
        """Whether this node is the one that saves, exports and returns the value."""
        return self.rank == 0

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
        message = {
            "metric": values,
            "step": None if step is None else int(step),
            "seconds": time.monotonic() - self._started,
        }
        with self._lock:
            self._send(message)

    def strategy(self) -> Any:
        """Return the ``tf.distribute`` strategy for this cluster.

        MultiWorkerMirroredStrategy with two or more workers, TensorFlow's default strategy with one. Call it
        once, before any other TensorFlow operation: TensorFlow demands that of collectives.
        """
        import tensorflow as tf

        if self.workers == 1:
            return tf.distribute.get_strategy()
        return tf.distribute.MultiWorkerMirroredStrategy()
