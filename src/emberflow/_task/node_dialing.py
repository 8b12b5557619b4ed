"""How a feeding task reaches the nodes of a live cluster: its own executor's first, then its host's, then any."""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from emberflow._feed.batch_connection import FEED, BatchConnection
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._protocol.sockets import dial, dial_abstract, host_and_port
from emberflow._task.executor import executor_pid
from emberflow.errors import EmberflowError, NodeLostError, PeerError


@dataclass(frozen=True, kw_only=True)
class NodeAddress:
    """Where one node listens for feeding tasks.

    Attributes:
        rank: The node.
        tcp: Its address.
        name: Its name among the abstract Unix sockets of its host; "" where there are none.
        jvm: Process id of its executor's JVM.
        devices: Its GPUs, separated by commas.
    """

    rank: int
    tcp: str
    name: str = ""
    jvm: int = 0
    devices: str = ""

    @property
    def host(self) -> str:
        """The node's host."""
        return host_and_port(self.tcp)[0]


def node_address(rank: int, endpoint: Mapping[str, str]) -> NodeAddress:
    """Return the address that a node told when it was ready (`LiveFeeds.endpoint`)."""
    return NodeAddress(
        rank=rank,
        tcp=endpoint["feed"],
        name=endpoint.get("feed_name", ""),
        jvm=int(endpoint.get("jvm", 0)),
        devices=endpoint.get("devices", ""),
    )


@dataclass(frozen=True, kw_only=True)
class FeedAccess:
    """What a feeding task needs to talk to nodes. It travels inside Spark's own serialised closure only.

    Attributes:
        nodes: Their addresses.
        key: With which both sides authenticate.
        timeout: Seconds for a node that is busy to answer, and for a byte to pass.
        encrypt: Whether rows are encrypted.
    """

    nodes: tuple[NodeAddress, ...]
    key: bytes = field(repr=False)
    timeout: float
    encrypt: bool


@contextmanager
def connected_to(access: FeedAccess, node: NodeAddress) -> Iterator[BatchConnection]:
    """Connect to this very node for the length of the block; if it is lost, raise an error that names it."""
    with _named_if_lost(node):
        sock = _dial(access, node)
    with _talking(access, node, sock) as connection:
        yield connection


@contextmanager
def connected_to_any(access: FeedAccess, number: int) -> Iterator[BatchConnection]:
    """Connect to the best of the nodes for the length of the block.

    Args:
        access: The nodes.
        number: The partition's number, by which tasks without a node of their own are spread over all nodes.
    """
    node, sock = _dial_best(access, number)
    with _talking(access, node, sock) as connection:
        yield connection


@contextmanager
def _talking(access: FeedAccess, node: NodeAddress, sock: SealedSocket) -> Iterator[BatchConnection]:
    connection = BatchConnection(sock, access.timeout, encrypt=access.encrypt)
    try:
        with _named_if_lost(node):
            yield connection
    finally:
        connection.close()


def _dial(access: FeedAccess, node: NodeAddress) -> SealedSocket:
    if node.name and sys.platform == "linux":
        with contextlib.suppress(OSError):  # it is on another host, or in another network namespace
            return dial_abstract(node.name, access.key, FEED, access.timeout)
    host, port = host_and_port(node.tcp)
    return dial(host, port, access.key, FEED, access.timeout, busy_timeout=access.timeout)


def _dial_best(access: FeedAccess, number: int) -> tuple[NodeAddress, SealedSocket]:
    order = by_preference(access.nodes, executor_pid(), number)
    if sys.platform == "linux":
        for node in order:
            if node.name:
                with contextlib.suppress(OSError):
                    return node, dial_abstract(node.name, access.key, FEED, access.timeout)
    for node in order[:-1]:
        with contextlib.suppress(OSError, PeerError):
            return node, _dial(access, node)
    with _named_if_lost(order[-1]):
        return order[-1], _dial(access, order[-1])


def by_preference(nodes: Sequence[NodeAddress], jvm: int, number: int) -> list[NodeAddress]:
    """Return the nodes of this executor first; among equals each partition begins with another one.

    >>> nodes = [NodeAddress(rank=rank, tcp="h:1", jvm=rank // 2) for rank in range(4)]
    >>> [node.rank for node in by_preference(nodes, jvm=1, number=3)]
    [3, 2, 0, 1]
    """
    start = number % len(nodes)
    rotated = [*nodes[start:], *nodes[:start]]
    return sorted(rotated, key=lambda node: node.jvm != jvm)


@contextmanager
def _named_if_lost(node: NodeAddress) -> Iterator[None]:
    """Turn the errors of a connection into one that names the node."""
    try:
        yield
    except PeerError as error:
        raise _lost(node, error) from error
    except EmberflowError:  # before OSError: some are both
        raise
    except (EOFError, OSError) as error:
        raise _lost(node, error) from error


def _lost(node: NodeAddress, error: BaseException) -> NodeLostError:
    problem = error.problem if isinstance(error, EmberflowError) else f"{type(error).__name__}: {error}"
    return NodeLostError(
        f"Rank {node.rank} on {node.host} must take the rows of this task. Received: {problem}",
        fix="See the error of the cluster itself, if the node has failed; run this action before the cluster is "
        "stopped; or check that this host can reach that one.",
        rank=node.rank,
        host=node.host,
    )
