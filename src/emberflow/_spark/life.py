"""One node's life, seen from its task: started, brought together with the others, followed to its end."""

import queue
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from emberflow._node.child import Child, running_child
from emberflow._node.frames import Message
from emberflow._node.gpus import GpuMonitor
from emberflow._node.order import JOB_FILE, VALUE_FILE, NodeOrder
from emberflow._node.outcome import Outcome, describe_exit
from emberflow._node.watch import Watch
from emberflow._spark.gathering import BarrierGathering, DriverGathering, Gathering

if TYPE_CHECKING:
    import socket

    from pyspark import BarrierTaskContext

LEAVE_TIMEOUT = 10.0
EVALUATOR_TIMEOUT = 60.0  # for a last evaluation after training is done
JOINED_TIMEOUT = 2.0  # for a parameter server that may sit in TensorFlow's own join, which never ends


class QuitError(Exception):
    """The driver has told this task to end, or is gone."""


class Life:
    """A node from its start to the end of its last descendant."""

    def __init__(self, order: NodeOrder) -> None:
        self._order = order
        self._plan = order.plan
        self._me = order.me
        self._folder = Path(order.folder)
        self._endpoints: dict[str, str] = {}
        self._ending: Message = {}
        self._is_serving = False
        self._monitor: GpuMonitor | None = None
        self.value = b""

    def live(
        self, environment: dict[str, str], driver: "socket.socket | None", context: "BarrierTaskContext"
    ) -> Outcome:
        """Start the node, bring it together with the others, wait for its end; nothing is left then."""
        held = () if driver is None else (driver.fileno(),)
        with (
            running_child(self._folder, environment, held) as child,
            _watching(child, driver, self._plan.forward_logs) as watch,
            self._monitored(),
        ):
            gathering: Gathering = (
                DriverGathering(watch) if self._plan.meeting == "driver" else BarrierGathering(watch, context)
            )
            watch.tell_node(self._give_order())
            outcome = self._start(watch) or self._meet(watch, gathering) or self._work(watch, gathering)
            watch.tell_driver({"outcome": outcome.to_json()})
            return outcome

    def outcome(self, ending: str, watch: Watch | None = None, **known: object) -> Outcome:
        """Return how this node ended."""
        return Outcome(
            rank=self._me.rank,
            role=self._me.role,
            index=self._me.index,
            host=self._order.host,
            ending=ending,  # type: ignore[arg-type]
            devices=self._order.devices,
            gpus=tuple(self._monitor.seen()) if self._monitor else (),
            log_tail=watch.tail() if watch else "",
            metrics=tuple(watch.metrics) if watch else (),
            **known,  # type: ignore[arg-type]
        )

    def _start(self, watch: Watch) -> Outcome | None:
        """Wait until the process is up and has loaded your function."""
        event = _next(watch, self._plan.start_timeout)
        if event is None:
            return self.outcome(
                "lost",
                watch,
                problem=f"its process did not get ready within {self._plan.start_timeout:g} s",
                fix="See what the modules of your function do on import, or raise start_timeout.",
            )
        if "ready" not in event:
            return self._ended_badly(watch, event)
        watch.tell_driver({"ready": True})
        self._endpoints = event["ready"]
        return None

    def _meet(self, watch: Watch, gathering: Gathering) -> Outcome | None:
        """Exchange addresses with all ranks, and let your function begin."""
        gathering.start("meet", self._endpoints)
        event = _next(watch)
        if event.get("gathered") != "meet":
            return self._ended_badly(watch, event)
        watch.tell_node({"cluster": event["values"]})
        return None

    def _work(self, watch: Watch, gathering: Gathering) -> Outcome:
        """Wait until all who train are done; then this node may go, whether it returned or serves."""
        if not self._me.trains:
            gathering.start("done", None)
        while True:
            event = _next(watch)
            if event.get("gathered") == "done":
                watch.tell_node({"leave": True})
                return self._leave(watch)
            if "tensorboard" in event:
                watch.tell_driver(event)
                continue
            if event.get("ended") == "returned":
                self._returned(event)
            elif "serving" in event:
                self._is_serving = True
            else:
                return self._ended_badly(watch, event)
            if self._me.trains:
                gathering.start("done", None)

    def _returned(self, event: Message) -> None:
        self._ending = event
        self.value = (self._folder / VALUE_FILE).read_bytes()  # the folder goes with the process

    def _leave(self, watch: Watch) -> Outcome:
        """Let the process end by itself, so that its exit handlers run; the keeper ends it if it does not."""
        timeout = self._patience()
        while (event := _next(watch, timeout)) and not _is_end(event):
            if "tensorboard" in event:
                watch.tell_driver(event)
            elif event.get("ended") == "returned":
                self._returned(event)
                timeout = LEAVE_TIMEOUT
            elif "ended" in event:
                return self._ended_badly(watch, event)
        watch.drain_log(1.0)
        return self.outcome("returned", watch, **_known(self._ending))

    def _patience(self) -> float:
        if self._ending or self._is_serving:
            return LEAVE_TIMEOUT
        return EVALUATOR_TIMEOUT if self._me.role == "evaluator" else JOINED_TIMEOUT

    def _ended_badly(self, watch: Watch, event: Message) -> Outcome:
        """Your function raised, or the process ended before it returned."""
        if "ended" in event:
            watch.drain_log(0.2)  # what it printed last is on its way
            return self.outcome("raised", watch, **_known(event))
        watch.drain_log(1.0)
        problem, fix = describe_exit(event.get("exit"))
        return self.outcome("lost", watch, problem=problem, fix=fix)

    def _give_order(self) -> Message:
        (self._folder / JOB_FILE).write_bytes(cloudpickle.dumps(self._order))
        return {"folder": str(self._folder), "sys_path": sys.path}

    @contextmanager
    def _monitored(self) -> Iterator[None]:
        self._monitor = GpuMonitor(self._order.devices)
        try:
            yield
        finally:
            self._monitor.stop()


@contextmanager
def _watching(child: Child, driver: "socket.socket | None", forward_logs: bool) -> Iterator[Watch]:
    watch = Watch(child, driver, forward_logs)
    try:
        yield watch
    finally:
        watch.close()


def _next(watch: Watch, timeout: float | None = None) -> Any:
    """Return the next event, or None at the timeout; `QuitError` when the driver wants us gone."""
    try:
        event = watch.queue.get(timeout=timeout)
    except queue.Empty:
        return None
    if "quit" in event or "driver_gone" in event:
        raise QuitError
    return event


def _is_end(event: Message) -> bool:
    return "exit" in event or "keeper_gone" in event


def _known(event: Message) -> dict[str, object]:
    names = ("problem", "fix", "exception_type", "seconds", "value_bytes")
    return {name: event[name] for name in names if name in event}
