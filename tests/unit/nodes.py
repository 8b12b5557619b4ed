"""Nodes without Spark: real processes for the tests of one node, sockets for the tests of the driver."""

import contextlib
import dataclasses
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle

from emberflow._driver.events import Events, JobFailed
from emberflow._driver.hub import Hub
from emberflow._node.node_spec import NodeSpec, send_spec
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import assign_roles
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import Cluster, Quit
from emberflow._protocol.frames import Channel
from emberflow._protocol.node_messages import Leave, NodeExited, Ready, StartNode
from emberflow._protocol.outcome import Ending, Outcome
from emberflow._protocol.sealed_file import LocalFile
from emberflow._task.driver_connection import dial, is_admitted
from emberflow._task.events import TaskEvent
from emberflow._task.node_monitor import NodeMonitor
from emberflow._task.node_process import NodeProcess, running_node

WITHIN = 20.0
KEY = b"k" * 32


def plan_of(workers: int, start_timeout: float = WITHIN, **more: Any) -> RunPlan:
    return RunPlan(
        run_id="0a1b2c3d",
        nodes=assign_roles(workers),
        rendezvous="driver",
        driver_address=None,
        start_timeout=start_timeout,
        forward_logs=True,
        python=(sys.version_info[0], sys.version_info[1]),
        **more,
    )


class RealNode:
    """One real node process, spoken to as its task does."""

    def __init__(self, child: NodeProcess, monitor: NodeMonitor, folder: Path) -> None:
        self.child = child
        self.monitor = monitor
        self.folder = folder

    def next(self) -> TaskEvent:
        return self.monitor.events.get(timeout=WITHIN)

    def meet(self) -> None:
        """Let the node begin, as if all others were there."""
        assert isinstance(self.next(), Ready)
        self.monitor.send_to_node(Cluster([{"tf": "a:1"}, {"tf": "b:2"}]))

    def run(self) -> Any:
        """Let the node call its function; return its last message."""
        self.meet()
        return self.next()

    def leave(self) -> int | None:
        """Let the node go; return its exit status."""
        self.monitor.send_to_node(Leave())
        event = self.next()
        assert isinstance(event, NodeExited)
        self.monitor.drain_log(WITHIN)
        return event.status

    def value(self) -> Any:
        return cloudpickle.loads((self.folder / "value.pickle").read_bytes())


@contextlib.contextmanager
def real_node(
    fn: Callable[[Any], Any],
    tmp_path: Path,
    rank: int = 0,
    workers: int = 2,
    heartbeat_limit: float = WITHIN,
    devices: tuple[str, ...] = (),
    *,
    from_file: bool = False,
    encrypts_files: bool = False,
    preload: tuple[str, ...] = (),
) -> Iterator[RealNode]:
    """Run a node for the length of the block."""
    plan = plan_of(workers, encrypts_files=encrypts_files, preload=preload)
    folder = tmp_path / "node"
    (folder / "work").mkdir(parents=True)
    spec = NodeSpec(
        me=plan.nodes[rank],
        plan=plan,
        host="127.0.0.1",
        folder=str(folder),
        devices=devices,
        key=b"k" * 32,
        fn=cloudpickle.dumps(fn),
    )
    if from_file:
        (folder / "function.pickle").write_bytes(spec.fn)
        spec = dataclasses.replace(
            spec, fn=b"", fn_file=LocalFile(path=str(folder / "function.pickle"), size=len(spec.fn))
        )
    environment = dict(os.environ) | {"EMBERFLOW_RUN": plan.run_id, "PYTHONUNBUFFERED": "1"}
    with running_node(folder, environment) as child:
        monitor = NodeMonitor(child, None, forward_logs=False, heartbeat_limit=heartbeat_limit)
        try:
            send_spec(child.feed, spec)
            monitor.send_to_node(StartNode(sys.path))
            yield RealNode(child, monitor, folder)
        finally:
            monitor.close()


class FakeJob:
    """Stands for the Spark job: says nothing by itself, remembers that it was cancelled."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.is_started = False
        self.is_without_executors = False
        self.losses: dict[int, str] = {}
        self.cancelled = 0
        self.loss_settle = deadlines.LOST_TASK_SETTLE

    def start(self) -> None:
        self.is_started = True

    def why_lost(self, rank: int) -> str:
        return self.losses.get(rank, "")

    def has_executors(self) -> bool:
        return not self.is_without_executors

    def cancel(self) -> None:
        self.cancelled += 1
        self.events.put(JobFailed(RuntimeError("[SPARK_JOB_CANCELLED] Job 0 cancelled")))


class FakeNode:
    """A node as the hub sees it: one authenticated connection that sends what it is told to send."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self.rank = rank
        sock = dial(("127.0.0.1", hub.port), KEY, rank, f"host-{rank}", WITHIN)
        self.is_admitted = is_admitted(sock, WITHIN)
        self.sock: socket.socket = sock
        self.sock.settimeout(WITHIN)
        self.channel = Channel(self.sock)

    def say(self, message: Message) -> None:
        self.channel.send(message)

    def await_message(self, message: Message) -> None:
        """Wait until the driver has sent this; it must not end the run before."""
        while (heard := self.channel.receive()) != message:
            assert heard != Quit()

    def end(self, ending: str = "returned", **known: Any) -> None:
        """Tell how it ended, then go."""
        self.say(outcome_of(self.rank, ending, **known))
        self.close()

    def hear_quit(self) -> None:
        while self.channel.receive() != Quit():
            pass

    def close(self) -> None:
        self.sock.close()


def outcome_of(rank: int, ending: str = "returned", **known: Any) -> Outcome:
    node = assign_roles(max(rank + 1, 2))[rank]
    return Outcome(
        rank=rank,
        role=node.role,
        index=node.index,
        host=f"host-{rank}",
        ending=Ending(ending),
        **known,
    )
