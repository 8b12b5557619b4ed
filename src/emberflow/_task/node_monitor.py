"""One thread in the task that listens to node, keeper and driver, and puts what they send into one queue.

The task's own thread belongs to Spark's rows; it takes events from the queue when it has to wait.
"""

import os
import queue
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from emberflow._plan.plan import LogCopy
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import LogLines, Probe, ProbeAnswer, Quit, RowsTaken
from emberflow._protocol.frames import frames_of, send
from emberflow._protocol.messages import decode
from emberflow._protocol.node_messages import NodeExited, NodeStarted, Ping, Pong, Raised, Returned
from emberflow._protocol.node_state import NodeState
from emberflow._protocol.outcome import MetricReport
from emberflow._protocol.sockets import readable
from emberflow._task.events import DriverGone, KeeperGone, NodeStopped, QuitError, TaskEvent
from emberflow._task.heartbeat import Heartbeat
from emberflow._task.metric_log import MetricLog
from emberflow._task.node_log import NodeLog
from emberflow._task.node_process import NodeProcess
from emberflow.config import EXCHANGE_TIMEOUT
from emberflow.errors import PeerError

KEPT_METRICS = 4000  # they travel in the outcome: a thousand nodes' must fit into Spark's limit of a result
READ = 1 << 16  # bytes; what a pipe of Linux holds


class NodeMonitor:
    """Listens to everything around one node until it is closed.

    What the node reports goes to the driver, or is kept in `metrics` where there is none; all else becomes an event.

    Args:
        child: The node.
        driver: The connection to the driver, if there is one.
        forward_logs: Whether the driver gets the node's output.
        heartbeat_limit: Seconds after which a silent node is given up.
        log_copy: What of its output goes to the executor's log.
        listener: Gets what the driver would get, where there is no driver to decide anything.

    Attributes:
        events: What the task has to handle.
        is_over: Set when the node has ended, or the driver has told this task to end.
        state: Returns what the node is doing, for the driver that asks.
        on_exit: Called on the monitor's thread when the node ends or has raised, before the event is put.
        metrics: What the node reported, where there is no driver to send it to.
    """

    def __init__(
        self,
        child: NodeProcess,
        driver: socket.socket | None,
        forward_logs: bool,
        heartbeat_limit: float = EXCHANGE_TIMEOUT,
        log_copy: LogCopy = "all",
        listener: Callable[[Message], object] | None = None,
    ) -> None:
        self.events: queue.Queue[TaskEvent] = queue.Queue()
        self.is_over = threading.Event()
        self.state: Callable[[], NodeState] = lambda: NodeState.STARTING
        self.on_exit: Callable[[TaskEvent], object] = bool
        self.metrics: MetricLog[MetricReport] = MetricLog(total_limit=KEPT_METRICS)
        self._child = child
        self._driver = driver
        self._listener = listener
        has_listener = driver is not None or listener is not None
        self._log = NodeLog(log_copy, self._forward if forward_logs and has_listener else None)
        self._sending = threading.Lock()
        self._log_drained = threading.Event()
        self._heartbeat = Heartbeat(heartbeat_limit, lambda: self.send_to_node(Ping()))
        self._stop_r, self._stop_w = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._listen, name="emberflow-monitor", daemon=True)
        self._thread.start()

    def next_event(self, timeout: float | None = None) -> TaskEvent | None:
        """Return the next event, or None at the timeout; `QuitError` when the driver has told this task to end."""
        try:
            event = self.events.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(event, Quit | DriverGone):
            raise QuitError
        return event

    def wait_for_event(self) -> TaskEvent:
        """Return the next event, however long it takes; `QuitError` as in `next_event`."""
        event = self.next_event()
        assert event is not None  # noqa: S101 - there is no timeout, for the type checker
        return event

    @property
    def pid(self) -> int | None:
        """The node's process on this host, once it is known."""
        return self._heartbeat.pid

    def log_tail(self, *, with_noise: bool = False) -> str:
        """Return the last lines of the node's log; `with_noise`: also those of TensorFlow's start-up."""
        return self._log.tail(with_noise=with_noise)

    def send_to_node(self, message: Message) -> None:
        """Send a message to the node; if it is gone the keeper reports that."""
        with suppress(OSError):
            send(self._child.control, message)

    def send_to_driver(self, message: Message) -> None:
        """Send a message to the driver, if it can be reached, or to who listens in its place."""
        if self._driver is not None:
            with suppress(OSError), self._sending:
                send(self._driver, message)
        elif self._listener is not None:
            self._listener(message)

    def drain_log(self, timeout: float) -> None:
        """Wait until everything that the node printed is read: when all processes that may print have ended."""
        self._log_drained.wait(timeout)

    def close(self) -> None:
        """Stop listening."""
        os.close(self._stop_w)
        self._thread.join()
        os.close(self._stop_r)
        self._selector.close()

    def _listen(self) -> None:
        sources: list[tuple[object, Callable[[], bool]]] = [
            (self._child.control, self._messages_from(self._child.control, None, self._heartbeat)),
            (self._child.log_fd, self._on_log),
            (self._child.status_fd, self._on_status),
        ]
        if self._driver is not None:
            sources.append((self._driver, self._messages_from(self._driver, DriverGone())))
        for source, handler in sources:
            self._selector.register(source, selectors.EVENT_READ, handler)  # type: ignore[arg-type]
        self._selector.register(self._stop_r, selectors.EVENT_READ, None)
        while True:
            for key, _ in self._selector.select(self._heartbeat.wait()):
                if key.data is None:
                    return
                if not key.data():
                    self._selector.unregister(key.fileobj)
            # What arrived while a handler was busy must be read first: the node has not been silent then.
            if (
                self._heartbeat.wait() == 0.0
                and not readable([self._child.control], 0.0)
                and self._heartbeat.is_missed()
            ):
                self._on_stopped()

    def _messages_from(
        self, sock: socket.socket, at_end: TaskEvent | None, heartbeat: Heartbeat | None = None
    ) -> Callable[[], bool]:
        frames = frames_of(sock)

        def read() -> bool:
            try:
                data = sock.recv(READ)
            except OSError:
                data = b""
            if heartbeat is not None:
                heartbeat.record() if data else heartbeat.stop()
            try:
                for message in frames.feed(data):
                    self._on_message(message)
            except PeerError as error:  # otherwise the task would wait for ever
                self.events.put(Raised(f"A message cannot be read: {error}"))
                return False
            if not data and at_end is not None:
                self.is_over.set()
                self.events.put(at_end)
            return bool(data)

        return read

    def _on_stopped(self) -> None:
        self._put_exit(NodeStopped(self._heartbeat.limit))
        self._child.end()  # a stopped process holds its connections; other nodes that wait for it must not

    def _on_message(self, message: Message) -> None:
        match message:
            case Pong():
                pass
            case Probe():  # answered here, since the task's own thread may be busy with Spark's rows
                self.send_to_driver(ProbeAnswer(self.state()))
            case MetricReport() if self._driver is None:
                self.metrics.add((), message.values, message)
                self.send_to_driver(message)
            case MetricReport() | RowsTaken():
                self.send_to_driver(message)
            case _:
                if isinstance(message, Raised):
                    self.on_exit(message)
                if isinstance(message, Quit | Returned | Raised):
                    self.is_over.set()
                    self._heartbeat.stop()
                self.events.put(message)

    def _put_exit(self, event: TaskEvent) -> None:
        self.on_exit(event)
        self.is_over.set()
        self.events.put(event)

    def _on_status(self) -> bool:
        data = os.read(self._child.status_fd, READ)
        for line in data.splitlines():
            message = decode(line)
            if isinstance(message, NodeStarted):
                self._heartbeat.pid = message.pid
            elif isinstance(message, NodeExited):
                self._heartbeat.stop()
                self._put_exit(message)
        if not data:
            self.events.put(KeeperGone())
        return bool(data)

    def _on_log(self) -> bool:
        data = os.read(self._child.log_fd, READ)
        if not data:
            self._log.end()
            self._log_drained.set()
            return False
        self._log.add(data)
        return True

    def _forward(self, lines: str) -> None:
        self.send_to_driver(LogLines(lines))
