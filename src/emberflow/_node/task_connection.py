"""The node's end of the wire to its task."""

import os
import queue
import socket
import threading
from collections.abc import Callable

from emberflow._protocol.frames import Channel, Message


class TaskConnection:
    """Anybody may send, one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._channel = Channel(sock)
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._replies: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.over = threading.Event()
        self._lost: list[int] = []
        self._on_lost: list[Callable[[int], None]] = []
        self._losing = threading.Lock()

    def first(self) -> Message:
        """Return the order, before anything else is heard."""
        return self._channel.receive()

    def listen(self) -> None:
        """Start the receiving thread."""
        threading.Thread(target=self._listen, name="emberflow-mailbox", daemon=True).start()

    def send(self, message: Message) -> None:
        """Send one message, whole; threads take turns."""
        with self._sending:
            self._channel.send(message)

    def ask(self, message: Message) -> Message:
        """Send a message and wait for its answer."""
        with self._asking:
            self.send(message)
            return self._replies.get()

    def watch_lost(self, call: Callable[[int], None]) -> None:
        """Have `call` told the rank of every worker that the run goes on without, earlier ones too."""
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
            except (EOFError, OSError):
                os._exit(1)  # the task is gone, and the keeper is about to end us
            if "leave" in message:
                self.over.set()
            elif "ping" in message:
                self.send({"pong": True})
            elif "lost" in message:
                self._lose(message["lost"])
            else:
                self._replies.put(message)
