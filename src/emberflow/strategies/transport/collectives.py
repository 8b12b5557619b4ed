"""TensorFlow's own collectives: the transport for GPUs, where they run on NCCL.

They must be started before any TensorFlow op, once per process, and their server listens on all interfaces without
authentication. Of tf.distribute only the start is used: no scope, no replica.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

import tensorflow as tf
from emberflow._plan import deadlines
from emberflow.config import EXCHANGE_TIMEOUT
from emberflow.errors import PeerError
from emberflow.strategies.transport.interface import Array, Tensor
from emberflow.strategies.transport.nccl_errors import nccl_error
from emberflow.strategies.transport.weighted_sums import average_by_sum

if TYPE_CHECKING:
    from emberflow.strategies.transport.rounded_sum import Residuals

_GROUP = 1
_SUMMABLE = (tf.float32, tf.float64, tf.int64)  # not int32: TensorFlow refuses to reduce it on GPUs


def start_collectives(tf_config: str, *, receive_timeout: float = EXCHANGE_TIMEOUT) -> "Collectives":
    """Start TensorFlow's server and wait for the other ranks; to be called before any TensorFlow op.

    Args:
        tf_config: The JSON text of TF_CONFIG. Chief and workers take part.
        receive_timeout: Seconds after which a rank that does not answer is an error.
    """
    config = json.loads(tf_config)
    cluster = {role: config["cluster"][role] for role in ("chief", "worker") if role in config["cluster"]}
    role, index = config["task"]["type"], int(config["task"]["index"])
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type=role, task_id=index, rpc_layer="grpc"
    )
    # The constructor starts the server and the collective executor; this is the only public way to do so.
    with nccl_errors():
        strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    rank = index + (len(cluster.get("chief", ())) if role == "worker" else 0)
    return Collectives(rank, sum(len(each) for each in cluster.values()), strategy, receive_timeout)


class Collectives:
    """Sums and gathers tensors by TensorFlow's collective ops. Created by `start_collectives`."""

    wire_dtypes = ("float32",)

    def __init__(self, rank: int, ranks: int, strategy: Any, receive_timeout: float) -> None:
        self.rank = rank
        self.ranks = ranks
        self.failure: PeerError | None = None  # TensorFlow's own errors say what happened
        self.strategy = strategy  # must live: it checks the health of the other ranks
        self._timeout = receive_timeout
        # "auto" would mean TensorFlow's own ring over gRPC, also between GPUs.
        self._hint = "nccl" if tf.config.list_logical_devices("GPU") else "auto"
        with tf.device("CPU:0"):
            self._calls = tf.Variable(0, dtype=tf.int32, trainable=False)

    def sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the sum of each tensor over all ranks, the same bits on each rank."""
        if self.ranks == 1 or not tensors:
            return list(tensors)
        given = [tf.convert_to_tensor(tensor) for tensor in tensors]
        wide = [tf.cast(tensor, _summable(tensor.dtype)) for tensor in given]
        sums: dict[int, Tensor] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in wide):
            places = [place for place, tensor in enumerate(wide) if tensor.dtype == dtype]
            flat = [tf.reshape(wide[place], [-1]) for place in places]
            with nccl_errors():
                whole = self._reduce(tf.concat(flat, 0), self._timeout)
            parts = tf.split(whole, [tf.size(part) for part in flat])
            sums |= dict(zip(places, parts, strict=True))
        return [
            tf.cast(tf.ensure_shape(tf.reshape(sums[place], tf.shape(tensor)), tensor.shape), tensor.dtype)
            for place, tensor in enumerate(given)
        ]

    def average(
        self,
        head: Tensor,
        tensors: list[Tensor],
        residuals: "Residuals | None" = None,  # noqa: ARG002 - never given: see `wire_dtypes`
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the sum of `head` and the average of each tensor, weighted by the first number of `head`."""
        return average_by_sum(self.sum, head, tensors)

    def gather(self, tensor: Tensor) -> Tensor:
        """Return all ranks' slices one after the other in rank order; first dimensions may differ."""
        tensor = tf.convert_to_tensor(tensor)
        if self.ranks == 1:
            return tensor
        with nccl_errors():
            return self._gather_uneven(tensor)

    def all_gather(self, array: Array) -> list[Array]:
        """Return each rank's array, flat, in rank order; sizes may differ. Not inside graphs."""
        flat = np.ascontiguousarray(array).reshape(-1)
        sizes = self.gather(np.array([flat.size])).numpy()
        whole: Array = self.gather(flat).numpy()
        return np.split(whole, np.cumsum(sizes)[:-1])

    def _gather_uneven(self, tensor: Tensor) -> Tensor:
        wide = tf.cast(tensor, _summable(tensor.dtype))
        shape = tf.shape(wide, tf.int64)  # int32 would be on the host, which NCCL does not accept
        sizes = self._gather(shape[:1])
        longest = tf.reduce_max(sizes)
        # All ranks must pass the same shape: the padding is removed again.
        gap = tf.concat([[longest - shape[0]], shape[1:]], 0)
        whole = self._gather(tf.concat([wide, tf.zeros(gap, wide.dtype)], 0))
        slices = [whole[rank * longest : rank * longest + sizes[rank]] for rank in range(self.ranks)]
        return tf.cast(tf.concat(slices, 0), tensor.dtype)

    def close(self) -> None:
        """Wait for the others: a rank that exits first breaks the exchanges of those that still run."""
        with contextlib.suppress(tf.errors.OpError):
            self._reduce(tf.zeros([3]), deadlines.GOODBYE_TIMEOUT)

    def _reduce(self, vector: Tensor, timeout: float) -> Tensor:
        return tf.raw_ops.CollectiveReduceV2(
            input=vector,
            group_size=self.ranks,
            group_key=_GROUP,
            instance_key=self._calls.assign_add(1, read_value=True),
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
            communication_hint=self._hint,
            timeout_seconds=timeout,
        )

    def _gather(self, tensor: Tensor) -> Tensor:
        return tf.raw_ops.CollectiveGatherV2(
            input=tensor,
            group_size=self.ranks,
            group_key=_GROUP,
            instance_key=self._calls.assign_add(1, read_value=True),
            ordering_token=[],
            communication_hint=self._hint,
            timeout_seconds=self._timeout,
        )


@contextlib.contextmanager
def nccl_errors() -> Iterator[None]:
    """Raise NCCL's errors as errors with a fix."""
    try:
        yield
    except tf.errors.OpError as error:
        if known := nccl_error(error.message):
            raise known from error
        raise


def _summable(dtype: Any) -> Any:
    """Return the type to add in: half floats as float32, whole numbers as int64."""
    if dtype in _SUMMABLE:
        return dtype
    return tf.float32 if dtype.is_floating else tf.int64
