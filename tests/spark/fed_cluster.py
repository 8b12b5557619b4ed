"""A live cluster whose nodes are threads of the test, with real sockets; real Spark jobs feed it."""

import contextlib
import hmac
import os
import signal
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberflow._driver.cluster_facts import read_facts
from emberflow._driver.live_feeding import LiveFeeding
from emberflow._feed.batch_connection import BatchConnection
from emberflow._node.live_feeds import LiveFeeds
from emberflow._node.node_spec import LiveSpec, NodeSpec
from emberflow._protocol.codec import Message
from emberflow._protocol.messages import decode, encode
from emberflow.errors import ClusterError
from tests.unit.nodes import KEY, WITHIN, plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Fn = Callable[[int, LiveFeeds], Any]


class KillingFeeds(LiveFeeds):
    """Kills the Python worker of a feeding task in the middle of its rows, for some connections."""

    def __init__(self, spec: NodeSpec, send: Callable[[Message], None], kills: "Kills") -> None:
        self._kills = kills
        super().__init__(spec, send)

    def _dispatch(self, connection: BatchConnection) -> None:
        if self._kills.take():
            receive = connection.receive_stream

            def killing() -> Iterator[Any]:
                for batch in receive():
                    yield batch
                    os.kill(pid_of_peer(connection._sock), signal.SIGKILL)

            connection.receive_stream = killing  # type: ignore[method-assign]
        super()._dispatch(connection)


class Kills:
    """How many feeding tasks are still to be killed."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self.left = count

    def take(self) -> bool:
        """Tell whether this task is one of them."""
        with self._lock:
            is_one = self.left > 0
            self.left -= is_one
            return is_one


def pid_of_peer(sock: socket.socket) -> int:
    pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


class FedCluster:
    """The driver's side, and the nodes.

    Attributes:
        feeding: What is tested.
        nodes: The nodes' side.
        values: What each function returned, after the end.
    """

    def __init__(
        self, spark: "SparkSession", fn: Fn, folder: Path, workers: int, kills: int, **plan: Any
    ) -> None:
        planned = plan_of(workers, exchange_timeout=WITHIN, **plan)
        self.kills = Kills(kills)
        self.values: dict[int, Any] = {}
        self.errors: list[BaseException] = []
        self.killed: set[int] = set()
        specs = [
            NodeSpec(
                me=node,
                plan=planned,
                host="127.0.0.1",
                folder=str(folder),
                devices=(),
                key=hmac.digest(KEY, b"ranks", "sha256"),
                fn=b"",
                live=LiveSpec(),
            )
            for node in planned.nodes
        ]
        self.nodes = [KillingFeeds(spec, self._sender(spec.me.rank), self.kills) for spec in specs]
        self.feeding = LiveFeeding(
            spark,
            read_facts(spark),
            planned,
            KEY,
            [node.endpoint for node in self.nodes],
            lambda rank, message: self.nodes[rank].on_message(travelled(message)),
            lambda message: [node.on_message(travelled(message)) for node in self.nodes],
        )
        self.threads = [
            threading.Thread(target=self._run, args=(fn, rank), name=f"node-{rank}")
            for rank in range(workers)
        ]
        for thread in self.threads:
            thread.start()

    def _sender(self, rank: int) -> Callable[[Message], None]:
        return lambda message: self.feeding.on_message(rank, travelled(message))

    def _run(self, fn: Fn, rank: int) -> None:
        try:
            self.values[rank] = fn(rank, self.nodes[rank])
            if rank not in self.killed:
                self.feeding.node_ended(rank)
        except BaseException as error:
            self.errors.append(error)
            self.feeding.fail(ClusterError(f"rank {rank}: {error!r}", fix="Look at the traceback."))
            raise

    def kill(self, rank: int) -> None:
        """End a node that tells nobody."""
        self.killed.add(rank)
        self.nodes[rank].close()

    def stop(self) -> dict[int, Any]:
        """Stop as ``cluster.stop`` does; return what the functions returned."""
        self.feeding.stopping()
        for thread in self.threads:
            thread.join(WITHIN)
            assert not thread.is_alive(), f"{thread.name} runs on"
        return self.values

    def close(self) -> None:
        for node in self.nodes:
            node.close()


def travelled(message: Message) -> Message:
    """Return the message as it arrives in another process."""
    return decode(encode(message))


@contextlib.contextmanager
def fed_cluster(
    spark: "SparkSession", fn: Fn, *, workers: int = 2, kills: int = 0, **plan: Any
) -> Iterator[FedCluster]:
    """Run a function on nodes for the length of the block; at its end nothing is left of it."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = FedCluster(spark, fn, Path(folder), workers, kills, **plan)
        try:
            yield cluster
            cluster.stop()
            assert not cluster.errors
        finally:
            cluster.close()
            assert not [
                thread.name for thread in threading.enumerate() if thread.name.startswith("emberflow-feed")
            ]
