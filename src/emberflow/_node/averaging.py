"""Periodic averaging on one node: the server on a ps, the connections to all servers on a worker."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emberflow._node.node_spec import NodeSpec
from emberflow._node.rank_transport import endpoint_of, open_listener
from emberflow._node.task_connection import TaskConnection
from emberflow._plan.tf_config import TFConfig
from emberflow._protocol.node_messages import Serving
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from emberflow.strategies.periodic.client import PeriodicClient

ENDPOINT = "periodic"


class Averaging:
    """Periodic averaging on this node.

    A server listens before the nodes know each other, so that its address can be sent to the others.
    """

    def __init__(self, spec: NodeSpec) -> None:
        self._spec = spec
        serves = spec.plan.strategy == "periodic" and spec.me.role == "ps"
        self._listener = open_listener(spec, "the server of periodic averaging") if serves else None
        self._addresses: list[str] = []
        self._clients: list[PeriodicClient] = []

    @property
    def endpoint(self) -> dict[str, str]:
        """What the workers must know of this node."""
        return endpoint_of(ENDPOINT, self._spec.host, self._listener)

    def join(self, endpoints: list[dict[str, str]], tf_config: TFConfig) -> None:  # noqa: ARG002
        """Learn the servers' addresses."""
        self._addresses = [each[ENDPOINT] for each in endpoints if ENDPOINT in each]

    def ps_work(self, connection: TaskConnection) -> Callable[[Any], Any] | None:
        """A parameter server serves the workers instead of calling your function."""
        return lambda _: self.serve(connection)

    def serve(self, task: TaskConnection) -> dict[str, Any]:
        """Serve until chief and workers are done; return statistics of the pushes."""
        from emberflow.strategies.periodic.server import PeriodicServer

        spec = self._spec
        assert self._listener is not None  # noqa: S101 - only a ps serves, for the type checker
        server = PeriodicServer(
            self._listener,
            index=spec.me.index,
            workers=sum(node.trains for node in spec.plan.nodes),
            key=spec.key,
            join_timeout=spec.plan.join_timeout,
            exchange_timeout=spec.plan.exchange_timeout,
            on_failure=task.over.set,  # wakes this thread up
            encrypt=spec.plan.encrypt,
        )
        task.on_worker_lost(server.values.mark_lost)
        server.start()
        task.send(Serving(self.endpoint[ENDPOINT]))
        task.over.wait()
        server.close()
        if server.failure is not None:
            raise server.failure
        return server.report()

    def client(self) -> "PeriodicClient":
        """Return new connections to all servers, not opened yet."""
        from emberflow.strategies.periodic.client import PeriodicClient

        spec = self._spec
        if not self._addresses or not spec.me.trains:
            raise ConfigError(
                "Periodic averaging needs servers, and runs on chief and workers. "
                f"Received: strategy={spec.plan.strategy!r}, role={spec.me.role!r}.",
                fix='Pass strategy="periodic", ps=1 to ef.run.',
            )
        client = PeriodicClient(
            self._addresses,
            key=spec.key,
            rank=spec.me.rank,
            attempt=spec.plan.attempt,
            join_timeout=spec.plan.join_timeout,
            exchange_timeout=spec.plan.exchange_timeout,
            encrypt=spec.plan.encrypt,
        )
        self._clients.append(client)
        return client

    def leave(self) -> None:
        """Tell the servers that this worker is done, unless a client has."""
        if self._addresses and self._spec.me.trains and not self._clients:
            self.client().decline()
        for client in self._clients:
            client.leave()
