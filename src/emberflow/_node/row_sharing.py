"""Training on parameter servers: batches that a slow node gives to faster ones, and the addresses to ask for them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emberflow._node.node_spec import NodeSpec
from emberflow._node.rank_transport import endpoint_of, open_listener
from emberflow._plan.tf_config import TFConfig

if TYPE_CHECKING:
    from emberflow._node.task_connection import TaskConnection
    from emberflow.strategies.parameter_server.row_sources import RowSource

ENDPOINT = "rows"


class RowSharing:
    """This node among those that train on each other's rows."""

    def __init__(self, spec: NodeSpec) -> None:
        self._spec = spec
        takes_part = spec.plan.strategy == "parameter_server" and spec.me.trains
        self._listener = open_listener(spec, "rows for other nodes") if takes_part else None
        self._addresses: list[str] = []
        self._sources: dict[str, RowSource] = {}

    @property
    def endpoint(self) -> dict[str, str]:
        """What the others must know of this node."""
        return endpoint_of(ENDPOINT, self._spec.host, self._listener)

    @property
    def takes_part(self) -> bool:
        """Whether this node trains with parameter servers."""
        return self._listener is not None

    @property
    def exchange_timeout(self) -> float:
        """Seconds after which a node that does not answer is an error."""
        return self._spec.plan.exchange_timeout

    def ps_work(self, connection: "TaskConnection") -> Callable[[Any], Any] | None:  # noqa: ARG002
        """A parameter server serves TensorFlow's operations instead of calling your function."""
        return lambda context: context.serve()

    def leave(self) -> None:
        """Nothing to send: only the chief's function returns, after all steps are done."""

    def join(self, endpoints: list[dict[str, str]], tf_config: TFConfig) -> None:  # noqa: ARG002
        """Learn the other nodes' addresses."""
        self._addresses = [each[ENDPOINT] for each in endpoints if ENDPOINT in each]

    def sources(self, datasets: dict[str, Callable[[], Any]], first_epoch: int) -> "dict[str, RowSource]":
        """Return the rows of this node by name, and begin to send them to others; once per node."""
        from emberflow.strategies.parameter_server.row_exchange import PeerRows, RowServer
        from emberflow.strategies.parameter_server.row_sources import RowSource

        spec = self._spec
        assert self._listener is not None  # noqa: S101 - `takes_part` was asked before, for the type checker
        peer_rows = PeerRows(
            self._addresses,
            key=spec.key,
            rank=spec.me.rank,
            join_timeout=spec.plan.join_timeout,
            exchange_timeout=spec.plan.exchange_timeout,
            encrypt=spec.plan.encrypt,
        )
        sources = {
            name: RowSource(
                name,
                make(),
                rank=spec.me.rank,
                first_epoch=first_epoch if name == "train" else 0,
                peer_rows=peer_rows,
            )
            for name, make in datasets.items()
        }
        takes = {name: source.take for name, source in sources.items()}
        RowServer(
            self._listener,
            key=spec.key,
            rank=spec.me.rank,
            takes=takes,
            exchange_timeout=spec.plan.exchange_timeout,
            encrypt=spec.plan.encrypt,
        )
        self._sources = sources  # TensorFlow's graphs refer to them by name only
        return sources
