"""How long does the driver take to bring 1,000 nodes together and see them off, and what is sent for that?

Everything of the driver is real: plan, hub, authenticated handshakes, attempt. The nodes are sockets in a process of
their own; the Spark job only says that it is over. With COLUMNS each node holds a shard of so many columns, whose
lists are of other lengths on every node. ``python -m benchmarks.thousand_nodes [NODES [COLUMNS]]``
"""

import contextlib
import multiprocessing
import resource
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.measure import print_result
from emberflow._driver.attempt import Attempt
from emberflow._driver.console import Console
from emberflow._driver.events import Events, JobRows
from emberflow._driver.hub import Hub
from emberflow._feed.shard_facts import ColumnFacts, ShardFacts
from emberflow._feed.shards import Shards
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node, assign_roles
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import Cluster, Gather, NodeReady, Quit, StartupFacts
from emberflow._protocol.frames import Channel, pack
from emberflow._protocol.outcome import Ending, Outcome
from emberflow._task.driver_connection import dial, is_admitted
from emberflow._task.exchange import DONE
from emberflow._task.startup_exchange import startup_facts

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

KEY = b"k" * 32
THREADS = 8
WITHIN = 60.0


class EndedJob:
    """Stands for Spark: brings back an empty list of rows when the nodes are through."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.loss_settle = deadlines.LOST_TASK_SETTLE

    def start(self) -> None:
        """Start nothing: the nodes come by themselves."""

    def cancel(self) -> None:
        """Be over at once."""
        self.end()

    def end(self) -> None:
        """Say that all tasks are over."""
        self._events.put(JobRows([]))


class Traffic:
    """What the exchange at start-up took on the busiest connection."""

    def __init__(self) -> None:
        self.sent = self.received = 0
        self.seconds = 0.0

    def note(self, sent: Message, received: Message, seconds: float) -> None:
        """Count what one node sent and received, and how long the answer took."""
        self.sent = max(self.sent, len(pack(sent)))
        self.received = max(self.received, len(pack(received)))
        self.seconds = max(self.seconds, seconds)


def facts_of(nodes: list[Node], columns: int) -> list[StartupFacts]:
    """Return what nodes bring at start-up: shards of numbers, and of lists whose lengths no other node has."""
    names = [f"a_column_{number}" for number in range(columns)]
    kinds = [pa.list_(pa.float32()) if number % 2 else pa.int64() for number in range(columns)]
    schema = ShardFacts(
        schema=pa.schema(list(zip(names, kinds, strict=True)))
    )  # once, it is the same for all
    (blob,) = schema.blobs().items()
    found = []
    for node in nodes:
        host = f"ip-10-0-{node.rank >> 8}-{node.rank & 255}.eu-central-1.compute.internal"
        lengths = [((node.rank % 7, 100 + node.rank * number % 977),) for number in range(columns)]
        facts = {name: ColumnFacts(lengths=lengths[at] if at % 2 else ()) for at, name in enumerate(names)}
        shard = ShardFacts(rows=1000 + node.rank, digest=f"{node.rank:016x}", columns=facts)
        mine = startup_facts(
            {"tf": f"{host}:42222", "ring": f"{host}:43333"}, {"train": shard} if columns else {}
        )
        if columns:
            mine.shards["train"][3] = blob[0]
            mine.blobs.update([blob])
        found.append(mine)
    return found


def live(address: tuple[str, int], nodes: list[Node], failing: int, columns: int, traffic: Traffic) -> None:
    """Be many nodes, from their dialling to their end."""
    facts = facts_of(nodes, columns)
    with contextlib.ExitStack() as held:
        channels = joined(address, nodes, held)
        with contextlib.suppress(EOFError, OSError, _QuitError):
            start_up(channels, facts, traffic)
            end(channels, failing)


def joined(
    address: tuple[str, int], nodes: list[Node], held: contextlib.ExitStack
) -> list[tuple[Node, Channel]]:
    """Return the connections of nodes that have joined; they close with `held`."""
    channels = []
    for node in nodes:
        sock = held.enter_context(dial(address, KEY, node.rank, f"host-{node.rank}", WITHIN))
        assert is_admitted(sock, WITHIN)
        sock.settimeout(WITHIN)
        channels.append((node, Channel(sock)))
    return channels


def start_up(channels: list[tuple[Node, Channel]], facts: list[StartupFacts], traffic: Traffic) -> None:
    """Get ready, and exchange facts with the others; the last of these nodes reads what it was told."""
    started = time.monotonic()
    for (_, channel), mine in zip(channels, facts, strict=True):
        channel.send(NodeReady())
        channel.send(mine)
    answers = [_answer(channel) for _, channel in channels]
    cluster = answers[-1]
    assert isinstance(cluster, Cluster)
    traffic.note(facts[-1], cluster, time.monotonic() - started)
    for text in cluster.shards.values():
        Shards.from_json(text)


def end(channels: list[tuple[Node, Channel]], failing: int = -1) -> None:
    """Wait for the others, say how it ended."""
    for node, channel in channels:
        fails = node.rank == failing
        channel.send(_outcome(node, Ending.RAISED) if fails else Gather(DONE, None))
    for _, channel in channels:
        _answer(channel)
    for node, channel in channels:
        channel.send(_outcome(node, Ending.RETURNED))


class _QuitError(Exception):
    """The driver has told a node to end."""


def _answer(channel: Channel) -> Message:
    message = channel.receive()
    if isinstance(message, Quit):
        raise _QuitError
    return message


def _outcome(node: Node, ending: Ending) -> Outcome:
    return Outcome(
        rank=node.rank,
        role=node.role,
        index=node.index,
        host=f"host-{node.rank}",
        ending=ending,
        problem="ValueError: nan loss" if ending is Ending.RAISED else "",
        exception_type="ValueError",
    )


def _be_nodes(
    address: tuple[str, int], nodes: tuple[Node, ...], failing: int, columns: int, told: "Connection"
) -> None:
    allow_open_files(len(nodes) + 100)
    traffic = Traffic()
    with ThreadPoolExecutor(THREADS) as pool:
        parts = [list(nodes[i::THREADS]) for i in range(THREADS)]
        for done in [pool.submit(live, address, part, failing, columns, traffic) for part in parts]:
            done.result()
    told.send(
        {
            "meeting_seconds": round(traffic.seconds, 2),
            "sent_bytes": traffic.sent,
            "received_bytes": traffic.received,
        }
    )


def allow_open_files(count: int) -> None:
    """Raise this process's own limit of open files, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard >= 0 else count, hard))


def plan_of(nodes: int) -> RunPlan:
    """Return the plan of a run with so many workers."""
    return RunPlan(
        run_id="thousand",
        nodes=assign_roles(nodes),
        rendezvous="driver",
        driver_address=None,
        start_timeout=WITHIN,
        forward_logs=True,
        python=(sys.version_info[0], sys.version_info[1]),
    )


def run_nodes(count: int, failing: int = -1, columns: int = 0) -> dict[str, Any]:
    """Run an attempt of `count` nodes to its end; return what it took, or raise its error.

    Bytes are those of the exchange at start-up, of the node that sent or received most.
    """
    allow_open_files(count + 500)
    started, cpu = time.monotonic(), time.process_time()
    plan = plan_of(count)
    with contextlib.closing(Hub("127.0.0.1", KEY, count)) as hub:
        job = EndedJob(hub.events)
        spawning = multiprocessing.get_context("spawn")
        heard, told = spawning.Pipe(duplex=False)
        nodes = spawning.Process(
            target=_be_nodes, args=(("127.0.0.1", hub.port), plan.nodes, failing, columns, told)
        )
        nodes.start()
        threading.Thread(target=lambda: (nodes.join(), job.end()), daemon=True).start()
        attempt = Attempt(plan, hub, job, Console(plan.nodes, verbose=False))  # type: ignore[arg-type]
        try:
            attempt.run()
        finally:
            nodes.join(WITHIN)
    return {
        "nodes": count,
        "seconds": round(time.monotonic() - started, 2),
        "driver_cpu_seconds": round(time.process_time() - cpu, 2),
        **heard.recv(),
    }


def _sizes(nodes: str = "1000", columns: str = "0") -> tuple[int, int, int]:
    return int(nodes), -1, int(columns)


if __name__ == "__main__":
    print_result("thousand_nodes", run_nodes(*_sizes(*sys.argv[1:])))
