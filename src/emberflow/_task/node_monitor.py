"""One thread in the task that listens to node, keeper and driver, and puts what it hears in one queue.

The task's own thread belongs to Spark's rows; it takes events from the queue when it has to wait.
"""

import json
import os
import queue
import re
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from emberflow._protocol.frames import Frames, Message, pack
from emberflow._protocol.sockets import readable
from emberflow._task.heartbeat import Heartbeat
from emberflow._task.metric_log import MetricLog
from emberflow._task.node_process import NodeProcess
from emberflow.config import EXCHANGE_TIMEOUT
from emberflow.errors import PeerError

# What TensorFlow says before anybody can tell it to be quiet; the executor's own log keeps it.
NOISE = re.compile(rb"I0000 00:00:|WARNING: All log messages before absl|E0000 .*(cuda_platform|cuInit)")
TAIL_LINES = 40  # enough for a traceback, with which the log of a failed node ends
LINE_LIMIT = 8192  # bytes; a program may print for ever without a line end
KEPT_METRICS = 4000  # they travel in the outcome: a thousand nodes' must fit into Spark's limit of a result
READ = 1 << 16  # bytes; what a pipe of Linux holds


class NodeMonitor:
    """Hears everything around one node until it is closed.

    Events in `queue`, each a message: from the node ``ready``, ``ended``; from the keeper ``exit``; from the
    driver ``gathered``, ``quit``; ``driver_gone`` when its end of the wire closed; ``stopped`` when the node has
    given no sign of runner for `pulse_limit` seconds, and is ended for that. What the node reports goes to the
    driver, or is kept in `metrics` where there is none.
    """

    def __init__(
        self,
        child: NodeProcess,
        driver: socket.socket | None,
        forward_logs: bool,
        pulse_limit: float = EXCHANGE_TIMEOUT,
    ) -> None:
        self.queue: queue.Queue[Message] = queue.Queue()
        self.is_over = threading.Event()  # the node has ended, or the driver wants us gone
        self.describe: Callable[[], str] = str  # what the driver is told when it asks what we do
        self.on_end: Callable[[Message], object] = (
            bool  # called here when the node ends, before the event is put
        )
        self.metrics: MetricLog[Message] = MetricLog(total_limit=KEPT_METRICS)
        self._child = child
        self._driver = driver
        self._forward_logs = forward_logs and driver is not None
        self._tail: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._partial = b""
        self._sending = threading.Lock()
        self._log_drained = threading.Event()
        self._pulse = Heartbeat(pulse_limit, lambda: self.tell_node({"ping": True}))
        self._stop_r, self._stop_w = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._listen, name="emberflow-watch", daemon=True)
        self._thread.start()

    def tail(self) -> str:
        """Return the last lines of the node's log."""
        lines = [*self._tail, self._partial] if self._partial else list(self._tail)
        return b"\n".join(lines).decode(errors="replace")

    def tell_node(self, message: Message) -> None:
        """Send a message to the node; if it is gone the keeper says so."""
        with suppress(OSError):
            self._child.control.sendall(pack(message))

    def tell_driver(self, message: Message) -> None:
        """Send a message to the driver, if there is one to talk to."""
        if self._driver is not None:
            with suppress(OSError), self._sending:
                self._driver.sendall(pack(message))

    def drain_log(self, timeout: float) -> None:
        """Wait until everything that the node printed is read: when all holders of its end are gone."""
        self._log_drained.wait(timeout)

    def close(self) -> None:
        """Stop listening."""
        os.close(self._stop_w)
        self._thread.join()
        os.close(self._stop_r)
        self._selector.close()

    def _listen(self) -> None:
        sources: list[tuple[object, Callable[[], bool]]] = [
            (self._child.control, self._messages_from(self._child.control, {}, self._pulse)),
            (self._child.log_fd, self._on_log),
            (self._child.status_fd, self._on_status),
        ]
        if self._driver is not None:
            sources.append((self._driver, self._messages_from(self._driver, {"driver_gone": True})))
        for source, handler in sources:
            self._selector.register(source, selectors.EVENT_READ, handler)  # type: ignore[arg-type]
        self._selector.register(self._stop_r, selectors.EVENT_READ, None)
        while True:
            for key, _ in self._selector.select(self._pulse.wait()):
                if key.data is None:
                    return
                if not key.data():
                    self._selector.unregister(key.fileobj)
            # What came while a handler was busy must be heard first: not the node was silent then, but we.
            if (
                self._pulse.wait() == 0.0
                and not readable([self._child.control], 0.0)
                and self._pulse.is_missed()
            ):
                self._on_stopped()

    def _messages_from(
        self, sock: socket.socket, last: Message, pulse: Heartbeat | None = None
    ) -> Callable[[], bool]:
        frames = Frames()

        def read() -> bool:
            try:
                data = sock.recv(READ)
            except OSError:
                data = b""
            if pulse is not None:
                pulse.hear() if data else pulse.stop()
            try:
                for message in frames.feed(data):
                    self._on_message(message)
            except (PeerError, ValueError) as error:  # else nobody would ever hear from this node again
                self.queue.put({"ended": "raised", "problem": f"It sent what cannot be read: {error}"})
                return False
            if not data and last:
                self.is_over.set()
                self.queue.put(last)
            return bool(data)

        return read

    def _on_stopped(self) -> None:
        self._put_end({"stopped": self._pulse.limit})
        self._child.end()  # a stopped process holds its connections; who waits for it there must go on

    def _on_message(self, message: Message) -> None:
        if "pong" in message:
            return
        if (
            "probe" in message
        ):  # answered here, since the task's own thread may be in the middle of Spark's rows
            self.tell_driver({"state": self.describe()})
            return
        if "metric" not in message:
            if "quit" in message or "ended" in message:
                self.is_over.set()
                self._pulse.stop()
            self.queue.put(message)
        elif self._driver is None:
            self.metrics.add((), message["metric"], message)
        else:
            self.tell_driver(message)

    def _put_end(self, event: Message) -> None:
        self.on_end(event)
        self.is_over.set()
        self.queue.put(event)

    def _on_status(self) -> bool:
        data = os.read(self._child.status_fd, READ)
        for line in data.splitlines():
            message = json.loads(line)
            self._pulse.pid = message.get("pid", self._pulse.pid)
            if "status" in message:
                self._pulse.stop()
                self._put_end({"exit": message["status"]})
        if not data:
            self.queue.put({"keeper_gone": True})
        return bool(data)

    def _on_log(self) -> bool:
        data = os.read(self._child.log_fd, READ)
        if not data:
            if self._forward_logs and self._partial:
                self.tell_driver({"log": self._partial.decode(errors="replace")})
            self._log_drained.set()
            return False
        with suppress(OSError):
            os.write(2, data)  # the executor's own log
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LINE_LIMIT:
            lines.append(self._partial)
            self._partial = b""
        lines = [line for line in lines if not NOISE.match(line)]
        self._tail.extend(line[:LINE_LIMIT] for line in lines[-TAIL_LINES:])
        if self._forward_logs and lines:
            self.tell_driver({"log": b"\n".join(lines).decode(errors="replace")})
        return True
