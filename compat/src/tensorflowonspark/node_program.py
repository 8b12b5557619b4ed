"""What each node of `TFCluster` runs: your function as TensorFlowOnSpark called it, and what it found around it."""

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from emberflow_compat import deadlines
from emberflow_compat.keras_choice import KerasChoice
from tensorflowonspark.node_feeds import NodeFeeds
from tensorflowonspark.node_queues import NodeManager, RowQueue
from tensorflowonspark.node_roles import Layout
from tensorflowonspark.remote_paths import explained_paths
from tensorflowonspark.TFSparkNode import TFNodeContext


@dataclass(frozen=True, kw_only=True)
class NodeProgram:
    """The function that `ef.cluster` runs.

    Attributes:
        keras: First, so that it holds when the modules that your function names are imported.
        layout: The jobs of the cluster.
        default_fs: Hadoop's default file system.
        working_dir: The driver's folder.
        queues: Their names.
        is_fed: Whether Spark brings rows.
        keeps_port: Whether your function releases the port of TensorFlow's server itself.
        tf_args: What your function gets; as a list also as `sys.argv`.
        map_fun: Your function.
    """

    keras: KerasChoice
    layout: Layout
    default_fs: str
    working_dir: str
    queues: tuple[str, ...]
    is_fed: bool
    keeps_port: bool
    tf_args: Any
    map_fun: Callable[[Any, Any], Any]

    def __call__(self, ctx: Any) -> None:
        """Run your function on one node."""
        job, index = self.layout.job_of(ctx.role, ctx.index)
        spec = self.layout.cluster_spec(ctx.cluster_spec)
        if self.layout.master or self.layout.trainers > 1 or len(spec) > 1:
            config = {"cluster": spec, "task": {"type": job, "index": index}, "environment": "cloud"}
            os.environ["TF_CONFIG"] = json.dumps(config)
        if isinstance(self.tf_args, list):
            sys.argv = self.tf_args
        feeds = NodeFeeds(ctx, self.queues) if self.is_fed and job not in ("ps", "evaluator") else None
        node = TFNodeContext(
            executor_id=self.layout.executor_id(ctx.role, ctx.index),
            job_name=job,
            task_index=index,
            cluster_spec=spec,
            defaultFS=self.default_fs,
            working_dir=self.working_dir,
            mgr=feeds.manager if feeds else NodeManager({name: RowQueue() for name in self.queues}),
            tmp_socket=socket.socket() if self.keeps_port else None,
        )
        node.mirror_by = ctx.mirror
        with feeds.errors_told() if feeds else nullcontext(), explained_paths():
            if job in ("ps", "evaluator"):
                self._run_beside(ctx, node)
            else:
                self.map_fun(self.tf_args, node)
        if feeds:
            feeds.finish()

    def _run_beside(self, ctx: Any, node: TFNodeContext) -> None:
        """Run your function until the others are done: on such nodes it may never return."""
        errors: list[BaseException] = []
        is_done = threading.Event()

        def run() -> None:
            try:
                self.map_fun(self.tf_args, node)
            except BaseException as error:  # noqa: BLE001 - raised again in the main thread
                errors.append(error)
            finally:
                is_done.set()

        runner = threading.Thread(target=run, name=f"tensorflowonspark-{node.job_name}", daemon=True)
        runner.start()
        threading.Thread(target=_set_when_over, args=(ctx, is_done), daemon=True).start()
        is_done.wait()
        if node.job_name == "evaluator":
            runner.join(deadlines.EVALUATOR_GRACE)
        if errors:
            raise errors[0]


def _set_when_over(ctx: Any, event: threading.Event) -> None:
    ctx.wait_until_over()
    event.set()
