"""The transport between the ranks that train, connected when the first model needs it."""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emberflow._node.node_spec import NodeSpec
from emberflow._plan.tf_config import TFConfig
from emberflow._protocol.sockets import address_of, listen
from emberflow.strategies.transport.connectors import CONNECTORS, Connector, RankSpec, SingleRankConnector

if TYPE_CHECKING:
    from emberflow._node.task_connection import TaskConnection
    from emberflow.strategies.transport.interface import Transport


class RankTransport:
    """Synchronous data parallel training on this node: its connector, and the transport once there is one."""

    def __init__(self, spec: NodeSpec) -> None:
        ranks = sum(node.trains for node in spec.plan.nodes)
        takes_part = spec.me.trains and ranks > 1 and not spec.plan.is_asynchronous
        self._connector: Connector = _connector_of(spec) if takes_part else SingleRankConnector()
        self._transport: Transport | None = None

    @property
    def endpoint(self) -> dict[str, str]:
        """What the other ranks must know of this one."""
        return self._connector.endpoint

    @property
    def has_tf_server(self) -> bool:
        """Whether the transport runs a TensorFlow server of its own, at this node's address."""
        return self._connector.tf_strategy is not None

    def join(self, endpoints: list[dict[str, str]], tf_config: TFConfig) -> None:
        """Learn the other nodes' endpoints."""
        self._connector.join(endpoints, tf_config)

    def ps_work(self, connection: "TaskConnection") -> Callable[[Any], Any] | None:  # noqa: ARG002
        """Parameter servers of a synchronous run call your function."""
        return None

    def leave(self) -> None:
        """Nothing to send: the node ends after all others are done."""

    def mirrored_strategy(self) -> Any:
        """Return TensorFlow's strategy: the one that the transport was started with, if it was."""
        import tensorflow as tf

        return self._connector.tf_strategy or tf.distribute.MultiWorkerMirroredStrategy()

    def transport(self) -> "Transport":
        """Return the connection to the other ranks; all of them must ask for it."""
        if self._transport is None:
            self._transport = self._connector.connect()
        return self._transport


def _connector_of(spec: NodeSpec) -> Connector:
    rank_spec = RankSpec(
        rank=spec.me.rank,
        host=spec.host,
        key=spec.key,
        port_range=spec.plan.port_range,
        join_timeout=spec.plan.join_timeout,
        exchange_timeout=spec.plan.exchange_timeout,
        encrypt=spec.plan.encrypt,
    )
    return CONNECTORS[spec.plan.transport](rank_spec)


def open_listener(spec: NodeSpec, what: str) -> socket.socket:
    """Listen on this node's host, at a port that others may dial."""
    return listen(spec.host, ports=spec.plan.port_range, what=what)


def endpoint_of(name: str, host: str, listener: socket.socket | None) -> dict[str, str]:
    """Return what other nodes must know of a listening socket, under its name; nothing where there is none."""
    return {} if listener is None else {name: address_of(host, listener.getsockname()[1])}
