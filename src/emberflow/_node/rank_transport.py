"""The transport between the ranks that train, connected when the first model asks for it."""

import json
import socket
from typing import TYPE_CHECKING, Any

from emberflow._node.node_spec import NodeSpec
from emberflow._plan.tf_config import TFConfig
from emberflow._protocol.sockets import address_of, listen

if TYPE_CHECKING:
    from emberflow.strategies.transport.interface import Transport


class RankTransport:
    """This rank's place among those that train.

    The door is opened before the nodes meet, so that its address can be told to the others; TensorFlow's
    collectives are started before your function, since TensorFlow wants them before any other operation.
    """

    def __init__(self, order: NodeSpec) -> None:
        self._order = order
        self._ranks = sum(node.trains for node in order.plan.nodes)
        self._takes_part = order.me.trains and self._ranks > 1 and not order.plan.is_asynchronous
        self._door = (
            open_listener(order, "the ring between ranks")
            if self._takes_part and order.plan.transport == "ring"
            else None
        )
        self._transport: Any = None
        self._addresses: list[str] = []

    @property
    def endpoint(self) -> dict[str, str]:
        """What the other ranks must know of us."""
        return endpoint_of("ring", self._order.host, self._door)

    @property
    def has_collectives(self) -> bool:
        """Whether TensorFlow's collectives run here, with their server."""
        return self._transport is not None and self._order.plan.transport == "collectives"

    def meet(self, endpoints: list[dict[str, str]], tf_config: TFConfig) -> None:
        """Hear of the others."""
        self._addresses = [each["ring"] for each in endpoints if "ring" in each]
        if self._takes_part and self._order.plan.transport == "collectives":
            from emberflow.strategies.transport.collectives import start_collectives

            limit = self._order.plan.exchange_timeout
            self._transport = start_collectives(json.dumps(tf_config), receive_timeout=limit)

    def mirrored_strategy(self) -> Any:
        """Return TensorFlow's strategy: the one that the collectives were started with, if they were."""
        import tensorflow as tf

        if self.has_collectives:
            return self._transport.strategy
        return tf.distribute.MultiWorkerMirroredStrategy()

    def transport(self) -> "Transport":
        """Return the connection to the other ranks; all of them must ask for it."""
        from emberflow.strategies.transport.ring import Listener, Ring

        if self._transport is None:
            if self._door is None:
                self._transport = Ring(0, 1, None)
            else:
                address = self.endpoint["ring"]
                self._transport = Ring.connect(
                    Listener(address=address, sock=self._door),
                    rank=self._order.me.rank,
                    addresses=self._addresses,
                    key=self._order.key,
                    timeout=self._order.plan.join_timeout,
                    receive_timeout=self._order.plan.exchange_timeout,
                )
        return self._transport  # type: ignore[no-any-return]


def open_listener(order: NodeSpec, what: str) -> socket.socket:
    """Listen on this node's host, at a port that others may dial."""
    return listen(order.host, ports=order.plan.port_range, what=what)


def endpoint_of(name: str, host: str, door: socket.socket | None) -> dict[str, str]:
    """Return what other nodes must know of an open door, under its name; nothing where there is none."""
    return {} if door is None else {name: address_of(host, door.getsockname()[1])}
