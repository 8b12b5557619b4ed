"""Independent runs of one function, each in a process of its own on an executor."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import emberflow as ef
from emberflow_compat.classic_sessions import check_context
from emberflow_compat.keras_choice import KerasChoice, choice_for_nodes
from tensorflowonspark import util
from tensorflowonspark.cluster_facts import default_fs_of, gpu_options, session_of
from tensorflowonspark.node_gpus import wanted_gpus
from tensorflowonspark.old_errors import executors_named, worker_errors
from tensorflowonspark.remote_paths import explained_paths
from tensorflowonspark.TFSparkNode import TFNodeContext

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True, kw_only=True)
class ParallelProgram:
    """The function that `ef.run_parallel` runs; `keras` is first, for the modules that your function names."""

    keras: KerasChoice
    default_fs: str
    tasks: int
    free_gpus: int
    tf_args: Any
    map_fn: Callable[[Any, Any], Any]

    def __call__(self, ctx: Any) -> None:
        """Run your function in one task."""
        if self.free_gpus:
            util.single_node_env(self.free_gpus, ctx.index)
        if isinstance(self.tf_args, list):
            sys.argv = self.tf_args
        node = TFNodeContext(executor_id=ctx.index, defaultFS=self.default_fs)
        node.num_workers = self.tasks
        node.mirror_by = ctx.mirror
        with explained_paths():
            self.map_fn(self.tf_args, node)


def run(
    sc: "SparkContext",
    map_fn: Callable[[Any, Any], Any],
    tf_args: Any,
    num_executors: int,
    use_barrier: bool = True,
) -> None:
    """Run your function so many times, and return when all are done.

    Args:
        sc: The SparkContext.
        map_fn: Your function, called as ``map_fn(tf_args, ctx)``; `ctx.worker_num` counts from 0.
        tf_args: What it gets.
        num_executors: How often.
        use_barrier: Whether all start at the same time, or none.

    Raises:
        WorkerError: Your function raised.
        ClusterError: Spark has too few slots for all at the same time.
    """
    check_context(sc, "TFParallel.run", native="ef.run_parallel(fn, tasks=n)")
    assigned = gpu_options(sc, tf_args)
    by_spark = assigned.get("gpu_source") == "spark"
    program = ParallelProgram(
        keras=choice_for_nodes(),
        default_fs=default_fs_of(sc),
        tasks=num_executors,
        free_gpus=0 if by_spark else wanted_gpus(tf_args) or 0,
        tf_args=tf_args,
        map_fn=map_fn,
    )
    with worker_errors(), executors_named():
        ef.run_parallel(
            program,
            tasks=num_executors,
            gpus=assigned["gpus"] if by_spark else 0,
            barrier=use_barrier,
            spark=session_of(sc),
        )
