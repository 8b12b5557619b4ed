"""tf.data service as roles of a job: what a dispatcher and a data worker run instead of your function."""

from typing import Any

from emberflow._node.context import Context
from emberflow._protocol.node_messages import Serving


def serve_dispatcher(port: int, ctx: Context) -> None:
    """Run tf.data service's dispatcher on a port until chief and workers are done."""
    import tensorflow as tf

    service = tf.data.experimental.service
    _serve_until_over(ctx, service.DispatchServer(service.DispatcherConfig(port=port)))


def serve_data(dispatcher: str, address: str, port: int, ctx: Context) -> None:
    """Run one worker of tf.data service until chief and workers are done.

    Args:
        dispatcher: The dispatcher's address.
        address: The address at which the other tasks reach this one.
        port: The port to listen on.
        ctx: The node's context.
    """
    import tensorflow as tf

    service = tf.data.experimental.service
    config = service.WorkerConfig(dispatcher_address=dispatcher, worker_address=address, port=port)
    _serve_until_over(ctx, service.WorkerServer(config))


def _serve_until_over(ctx: Context, server: Any) -> None:
    """Wait for the end of the training; a service by itself, which is a cluster of one, runs until it is ended."""
    if not ctx.is_chief:
        ctx._send(Serving(f"tf.data service, {type(server).__name__}"))  # noqa: SLF001 - internal to Emberflow
    ctx.wait_until_over()
