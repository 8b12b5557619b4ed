"""The node's end of its connection to the Spark task."""

import os
import queue
import socket
import threading
import traceback
from collections.abc import Callable
from typing import TypeVar

from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import Cluster, WorkerLost
from emberflow._protocol.frames import Channel
from emberflow._protocol.live_messages import TO_NODE
from emberflow._protocol.node_messages import Leave, Ping, Pong, Ready, StartNode, StepsAgreed, StepsOffered
from emberflow.errors import PeerError

Kind = TypeVar("Kind", bound=Message)


class TaskConnection:
    """Any thread may send, one thread receives.

    Attributes:
        over: Set when chief and workers are done.
        kept: What must stay open until then, since other ranks may still be in their last exchange.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._channel = Channel(sock)
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._replies: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.over = threading.Event()
        self.kept: object = None
        self._lost: list[int] = []
        self._on_lost: list[Callable[[int], None]] = []
        self._losing = threading.Lock()
        self._on_feed: Callable[[Message], None] | None = None
        self._early: list[Message] = []

    def receive_start(self) -> StartNode:
        """Return the first message of the task; call it before `listen`."""
        return _expect(StartNode, self._channel.receive())

    def listen(self) -> None:
        """Start the receiving thread."""
        threading.Thread(target=self._listen, name="emberflow-receiver", daemon=True).start()

    def send(self, message: Message) -> None:
        """Send one message; threads take turns."""
        with self._sending:
            self._channel.send(message)

    def announce(self, ready: Ready) -> None:
        """Tell the addresses of this node: its rows may come."""
        self.send(ready)

    def join_cluster(self) -> Cluster:
        """Return when all nodes have announced themselves and have their rows."""
        return _expect(Cluster, self._replies.get())

    def agree_on_steps(self, steps: int) -> int:
        """Tell how many steps this rank can fill; return the most that any can."""
        return _expect(StepsAgreed, self._ask(StepsOffered(steps))).steps

    def _ask(self, message: Message) -> Message:
        with self._asking:
            self.send(message)
            return self._replies.get()

    def on_feed_message(self, call: Callable[[Message], None]) -> None:
        """Call `call`, on the receiving thread, with every message of the driver about feeds, earlier ones too."""
        with self._losing:
            self._on_feed = call
            for message in self._early:
                call(message)

    def _feed(self, message: Message) -> None:
        with self._losing:
            if self._on_feed is None:
                self._early.append(message)
            else:
                self._on_feed(message)

    def on_worker_lost(self, call: Callable[[int], None]) -> None:
        """Call `call` with the rank of every worker that the run continues without, earlier ones too."""
        with self._losing:
            self._on_lost.append(call)
            for rank in self._lost:
                call(rank)

    def _lose(self, rank: int) -> None:
        with self._losing:
            self._lost.append(rank)
            for call in self._on_lost:
                call(rank)

    def _listen(self) -> None:
        while True:
            try:
                message = self._channel.receive()
            except PeerError:
                traceback.print_exc()
                os._exit(1)
            except (EOFError, OSError):
                os._exit(1)  # the task is gone, and the keeper is about to kill this process
            match message:
                case Leave():
                    self.over.set()
                case Ping():
                    self.send(Pong())
                case WorkerLost(rank):
                    self._lose(rank)
                case _ if isinstance(message, TO_NODE):
                    self._feed(message)
                case _:
                    self._replies.put(message)


def _expect(kind: type[Kind], message: Message) -> Kind:
    """Return a message of this kind."""
    if not isinstance(message, kind):
        raise PeerError(
            f"The task must send {kind.__name__} now. Received: {message!r:.80}.",
            fix="Check that driver and executors run the same version of emberflow.",
        )
    return message
