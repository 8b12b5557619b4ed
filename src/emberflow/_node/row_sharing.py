"""Rows that one node gives to others when it is slower than they are: the door, and where the others' doors are."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emberflow._node.node_spec import NodeSpec
from emberflow._node.rank_transport import endpoint_of, open_listener

if TYPE_CHECKING:
    from emberflow.strategies.parameter_server.row_sources import Source

ENDPOINT = "rows"


class RowSharing:
    """This node's place among those that train on each other's rows."""

    def __init__(self, order: NodeSpec) -> None:
        self._order = order
        takes_part = order.plan.strategy == "parameter_server" and order.me.trains
        self._door = open_listener(order, "rows for other nodes") if takes_part else None
        self._addresses: list[str] = []

    @property
    def endpoint(self) -> dict[str, str]:
        """What the others must know of us."""
        return endpoint_of(ENDPOINT, self._order.host, self._door)

    @property
    def takes_part(self) -> bool:
        """Whether this node trains with parameter servers."""
        return self._door is not None

    @property
    def exchange_timeout(self) -> float:
        """Seconds after which a node that does not answer is an error."""
        return self._order.plan.exchange_timeout

    def meet(self, endpoints: list[dict[str, str]]) -> None:
        """Hear of the others."""
        self._addresses = [each[ENDPOINT] for each in endpoints if ENDPOINT in each]

    def sources(self, datasets: dict[str, Callable[[], Any]], first_epoch: int) -> "dict[str, Source]":
        """Return the rows of this node by name, and begin to give them to others; once in a node's life."""
        from emberflow.strategies.parameter_server.row_exchange import Others, RowServer
        from emberflow.strategies.parameter_server.row_sources import Source

        order = self._order
        assert self._door is not None  # noqa: S101 - `takes_part` was asked before, for the type checker
        others = Others(
            self._addresses,
            key=order.key,
            rank=order.me.rank,
            join_timeout=order.plan.join_timeout,
            exchange_timeout=order.plan.exchange_timeout,
        )
        sources = {
            name: Source(
                name,
                make(),
                rank=order.me.rank,
                first_epoch=first_epoch if name == "train" else 0,
                others=others,
            )
            for name, make in datasets.items()
        }
        takes = {name: source.take for name, source in sources.items()}
        limit = order.plan.exchange_timeout
        RowServer(self._door, key=order.key, rank=order.me.rank, takes=takes, exchange_timeout=limit)
        return sources
