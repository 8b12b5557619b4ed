"""How long does the driver take to bring 1,000 nodes together and see them off?

Everything of the driver is real: plan, hub, keyed handshakes, attempt. The nodes are sockets in a process of
their own; the Spark job only says that it is over. ``python -m benchmarks.thousand_nodes [NODES]``
"""

import contextlib
import multiprocessing
import queue
import resource
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.measure import print_result
from emberflow._node.outcome import Outcome
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node, assign_roles
from emberflow._spark.attempt import Attempt
from emberflow._spark.console import Console
from emberflow._spark.hub import Hub, dial
from emberflow._wire.frames import Channel, Message

KEY = b"k" * 32
THREADS = 8
WITHIN = 60.0


class EndedJob:
    """Stands for Spark: brings back an empty list of rows when the nodes are through."""

    def __init__(self, events: "queue.Queue[Message]") -> None:
        self._events = events

    def start(self) -> None:
        """Start nothing: the nodes come by themselves."""

    def cancel(self) -> None:
        """Be over at once."""
        self.end()

    def end(self) -> None:
        """Say that all tasks are over."""
        self._events.put({"rows": []})


def live(address: tuple[str, int], nodes: list[Node], failing: int) -> None:
    """Be many nodes, from their dialling to their end."""
    with contextlib.ExitStack() as held:
        channels = []
        for node in nodes:
            sock = held.enter_context(dial(address, KEY, node.rank, f"host-{node.rank}", WITHIN))
            sock.settimeout(WITHIN)
            channels.append((node, Channel(sock)))
        with contextlib.suppress(EOFError, OSError, _QuitError):
            _train(channels, failing)


def _train(channels: list[tuple[Node, Channel]], failing: int) -> None:
    """Get ready, meet, wait for the others, say how it ended."""
    for node, channel in channels:
        channel.send({"ready": True})
        channel.send({"gather": "meet", "value": {"tf": f"host-{node.rank}:2222"}})
    for _, channel in channels:
        _gathered(channel)
    for node, channel in channels:
        fails = node.rank == failing
        word = {"outcome": _outcome(node, "raised").to_json()} if fails else {"gather": "done", "value": None}
        channel.send(word)
    for _, channel in channels:
        _gathered(channel)
    for node, channel in channels:
        channel.send({"outcome": _outcome(node, "returned").to_json()})


class _QuitError(Exception):
    """The driver has told a node to end."""


def _gathered(channel: Channel) -> Message:
    message = channel.receive()
    if "quit" in message:
        raise _QuitError
    return message


def _outcome(node: Node, ending: str) -> Outcome:
    return Outcome(
        rank=node.rank,
        role=node.role,
        index=node.index,
        host=f"host-{node.rank}",
        ending=ending,  # type: ignore[arg-type]
        problem="ValueError: nan loss" if ending == "raised" else "",
        exception_type="ValueError",
    )


def _be_nodes(address: tuple[str, int], nodes: tuple[Node, ...], failing: int) -> None:
    allow_open_files(len(nodes) + 100)
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(live, address, list(nodes[i::THREADS]), failing) for i in range(THREADS)]:
            done.result()


def allow_open_files(count: int) -> None:
    """Raise this process's own limit of open files, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard >= 0 else count, hard))


def gang_of(count: int, failing: int = -1) -> dict[str, Any]:
    """Run a gang of `count` nodes to its end; return seconds and the driver's CPU seconds, or raise its error."""
    allow_open_files(count + 500)
    started, cpu = time.monotonic(), time.process_time()
    plan = RunPlan(
        run_id="thousand",
        nodes=assign_roles(count),
        meeting="driver",
        driver_address=None,
        start_timeout=WITHIN,
        forward_logs=True,
        python=(sys.version_info[0], sys.version_info[1]),
    )
    with contextlib.closing(Hub("127.0.0.1", KEY, count)) as hub:
        job = EndedJob(hub.events)
        nodes = multiprocessing.get_context("spawn").Process(
            target=_be_nodes, args=(("127.0.0.1", hub.port), plan.nodes, failing)
        )
        nodes.start()
        threading.Thread(target=lambda: (nodes.join(), job.end()), daemon=True).start()
        attempt = Attempt(plan, hub, job, Console(plan.nodes, verbose=False))  # type: ignore[arg-type]
        try:
            attempt.supervise()
        finally:
            nodes.join(WITHIN)
    return {
        "nodes": count,
        "seconds": round(time.monotonic() - started, 2),
        "driver_cpu_seconds": round(time.process_time() - cpu, 2),
    }


if __name__ == "__main__":
    print_result("thousand_nodes", gang_of(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
