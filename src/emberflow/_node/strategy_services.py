"""What each strategy needs of a node, by the strategy's name."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from emberflow._node.averaging import Averaging
from emberflow._node.node_spec import NodeSpec
from emberflow._node.rank_transport import RankTransport
from emberflow._node.row_sharing import RowSharing
from emberflow._plan.tf_config import TFConfig

if TYPE_CHECKING:
    from emberflow._node.context import Context
    from emberflow._node.task_connection import TaskConnection

Work = Callable[["Context"], Any]


class StrategyService(Protocol):
    """One strategy's part of a node, from before the nodes know each other to the end of your function."""

    @property
    def endpoint(self) -> dict[str, str]:
        """What the other nodes must know of this one, by name; empty where the node has no part."""

    def join(self, endpoints: list[dict[str, str]], tf_config: TFConfig) -> None:
        """Learn the other nodes' endpoints."""

    def ps_work(self, connection: "TaskConnection") -> Work | None:
        """Return what a parameter server runs instead of your function; None where it runs your function."""

    def leave(self) -> None:
        """Tell the others that your function has returned here."""


class StrategyServices:
    """The services of all strategies on one node; those that the plan's strategy does not use are idle.

    Attributes:
        parallel: For ``ctx.distribute``.
        averaging: For ``ctx.periodic``.
        sharing: For ``ctx.coordinate``.
        by_strategy: The same by the strategy's name.
    """

    def __init__(self, spec: NodeSpec) -> None:
        self.parallel = RankTransport(spec)
        self.averaging = Averaging(spec)
        self.sharing = RowSharing(spec)
        self.by_strategy: dict[str, StrategyService] = {
            "data_parallel": self.parallel,
            "parameter_server": self.sharing,
            "periodic": self.averaging,
        }
        self._strategy = spec.plan.strategy

    @property
    def endpoint(self) -> dict[str, str]:
        """What the other nodes must know of this one."""
        return {name: each for service in self._all() for name, each in service.endpoint.items()}

    def join(self, endpoints: list[dict[str, str]], tf_config: TFConfig) -> None:
        """Learn the other nodes' endpoints."""
        for service in self._all():
            service.join(endpoints, tf_config)

    def ps_work(self, connection: "TaskConnection") -> Work | None:
        """Return what a parameter server of the plan's strategy runs instead of your function."""
        return self.by_strategy[self._strategy].ps_work(connection)

    def leave(self) -> None:
        """Tell the others that your function has returned here."""
        self.by_strategy[self._strategy].leave()

    def _all(self) -> list[StrategyService]:
        return list(self.by_strategy.values())
