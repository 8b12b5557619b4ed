"""What a node runs: the surroundings that a training function expects, and then the function."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emberflow_compat.keras_choice import KerasChoice


@dataclass(frozen=True, kw_only=True)
class NodeProgram:
    """A training function and how it is to be run, the same for all nodes.

    Attributes:
        keras: Which Keras `tf.keras` is; the first, so that it holds before the function is unpickled.
        train_fn: The user's function.
        kwargs: Its arguments.
        num_slots: GPUs of all nodes together.
        use_gpu: Whether nodes have GPUs.
        gpu_resource_name: Spark's name for them.
        use_custom_strategy: Whether the function makes its own strategy.
    """

    keras: KerasChoice
    train_fn: Callable[..., Any]
    kwargs: Mapping[str, Any] = field(repr=False)
    num_slots: int
    use_gpu: bool
    gpu_resource_name: str
    use_custom_strategy: bool


def run_in_node(program: NodeProgram, ctx: Any) -> Any:
    """Run the training function in a node; only what the first node returns is kept."""
    from spark_tensorflow_distributor.barrier_context import NodeBarrierContext, install

    addresses = [address for job in ("chief", "worker") for address in ctx.cluster_spec.get(job, ())]
    mine = ctx.devices[: share_of(ctx.rank, program.num_slots, ctx.workers)] if program.use_gpu else ()
    os.environ |= {
        "TF_CONFIG": tf_config_of(ctx.rank, addresses),
        "CUDA_VISIBLE_DEVICES": ",".join(mine),
    }
    ctx.all_gather()  # connects the nodes now: the program may call a barrier at very different times
    install(NodeBarrierContext(ctx, addresses, program.gpu_resource_name))
    value = run_program(program.train_fn, program.use_custom_strategy, program.kwargs)
    return value if ctx.rank == 0 else None


def run_program(train_fn: Callable[..., Any], use_custom_strategy: bool, kwargs: Mapping[str, Any]) -> Any:
    """Call the function, in the scope of a MultiWorkerMirroredStrategy unless it makes its own."""
    if use_custom_strategy:
        return train_fn(**kwargs)
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        return train_fn(**kwargs)


def share_of(rank: int, num_slots: int, tasks: int) -> int:
    """Return how many of all GPUs a node uses; the first ones have one more where they cannot be equal.

    >>> [share_of(rank, 7, 3) for rank in range(3)]
    [3, 2, 2]
    """
    return num_slots // tasks + (rank < num_slots % tasks)


def tf_config_of(rank: int, addresses: list[str]) -> str:
    """Return TF_CONFIG as the old library wrote it: workers only, the first of which acts as chief.

    >>> tf_config_of(1, ["a:1", "b:2"])
    '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}'
    """
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}})
