"""The node's end of the wire to its task."""

import os
import queue
import socket
import threading

from emberflow._wire.frames import Channel, Message


class Mailbox:
    """Anybody may send, one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._channel = Channel(sock)
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._replies: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.over = threading.Event()

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

    def _listen(self) -> None:
        while True:
            try:
                message = self._channel.receive()
            except (EOFError, OSError):
                os._exit(1)  # the task is gone, and the keeper is about to end us
            if "leave" in message:
                self.over.set()
            else:
                self._replies.put(message)
