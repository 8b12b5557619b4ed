"""The driver's end of the wires to all nodes of one attempt: who joined, what they say, what they all agree on."""

import os
import queue
import selectors
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from emberflow._node.frames import Frames, Message, send
from emberflow._node.handshake import prove_as_client, prove_as_server
from emberflow.errors import PeerError

PURPOSE = "node to driver"
SEND_TIMEOUT = 10.0
PROVING_AT_ONCE = 64  # strangers can hold this many threads, each for the handshake's limit
READ = 1 << 16


class Hub:
    """Listens for the tasks of one attempt, and tells `events` everything they say.

    Events are messages with a ``rank``: ``joined`` (host), ``ready``, ``log``, ``metric``, ``outcome``, ``gone``; and
    without one: ``gathered`` (the tag), once every rank has brought its value.

    Args:
        bind_host: The address to listen on; any free port.
        key: The attempt's secret. A task of an earlier attempt holds another one and is turned away.
        ranks: How many nodes the attempt has.
    """

    def __init__(self, bind_host: str, key: bytes, ranks: int) -> None:
        self.events: queue.Queue[Message] = queue.Queue()
        self._ranks = ranks
        self._key = key
        self._peers: dict[int, socket.socket] = {}
        self._gathers: dict[str, dict[int, Any]] = {}
        self._new: queue.SimpleQueue[socket.socket | None] = queue.SimpleQueue()
        self._listener = _listen(bind_host, ranks)
        self._wake_r, self._wake_w = os.pipe()
        self._door = ThreadPoolExecutor(PROVING_AT_ONCE, thread_name_prefix="emberflow-door")
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_r, selectors.EVENT_READ, self._seat_newcomers)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self.port = int(self._listener.getsockname()[1])
        self._loop_thread = threading.Thread(target=self._loop, name="emberflow-hub", daemon=True)
        self._loop_thread.start()

    def send(self, rank: int, message: Message) -> None:
        """Send to one node; if it is gone, its ``gone`` event says so."""
        if peer := self._peers.get(rank):
            with suppress(OSError):
                send(peer, message)

    def broadcast(self, message: Message) -> None:
        """Send to every node that is still there."""
        for rank in list(self._peers):
            self.send(rank, message)

    def close(self) -> None:
        """Stop listening and hang up on everybody."""
        self._new.put(None)
        os.write(self._wake_w, b"x")
        self._loop_thread.join()
        self._door.shutdown(wait=False, cancel_futures=True)

    def _loop(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data() is False:
                    self._close_all()
                    return

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        self._door.submit(self._prove, sock)

    def _prove(self, sock: socket.socket) -> None:
        """Let a newcomer in if it has the key; in a thread, so that a silent one keeps nobody waiting."""
        try:
            prove_as_server(sock, self._key, PURPOSE)
            sock.settimeout(SEND_TIMEOUT)
            keep_alive(sock)
        except (PeerError, OSError):
            sock.close()
            return
        self._new.put(sock)
        with suppress(OSError):  # the hub has closed meanwhile
            os.write(self._wake_w, b"x")

    def _seat_newcomers(self) -> bool:
        """Listen to those who proved the key; False when it is time to close."""
        os.read(self._wake_r, 4096)
        while not self._new.empty():
            sock = self._new.get()
            if sock is None:
                return False
            self._selector.register(sock, selectors.EVENT_READ, _Peer(self, sock).read)
        return True

    def _close_all(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        while not self._new.empty():
            if sock := self._new.get():
                sock.close()
        os.close(self._wake_r)
        os.close(self._wake_w)

    def _join(self, sock: socket.socket, message: Message) -> int | None:
        """Give a newcomer its seat, unless it is taken: then Spark has started that task a second time."""
        rank = int(message["join"])
        if rank in self._peers or not 0 <= rank < self._ranks:
            return None
        self._peers[rank] = sock
        self.events.put({"rank": rank, "joined": message["host"]})
        return rank

    def _hear(self, rank: int, message: Message) -> None:
        if "gather" not in message:
            self.events.put(message | {"rank": rank})
            return
        tag = message["gather"]
        values = self._gathers.setdefault(tag, {})
        values[rank] = message["value"]
        if len(values) == self._ranks:
            ordered = [values[each] for each in range(self._ranks)]
            self.broadcast({"gathered": tag, "values": ordered})
            self.events.put({"gathered": tag})

    def _hang_up(self, sock: socket.socket, rank: int | None) -> None:
        self._selector.unregister(sock)
        sock.close()
        if rank is not None:
            del self._peers[rank]
            self.events.put({"rank": rank, "gone": True})


class _Peer:
    """One accepted connection."""

    def __init__(self, hub: Hub, sock: socket.socket) -> None:
        self._hub = hub
        self._sock = sock
        self._rank: int | None = None
        self._frames = Frames()

    def read(self) -> None:
        try:
            data = self._sock.recv(READ)
        except OSError:
            data = b""
        for message in self._frames.feed(data):
            if self._rank is not None:
                self._hub._hear(self._rank, message)  # noqa: SLF001 - a part of the hub
            elif "join" in message:
                self._rank = self._hub._join(self._sock, message)  # noqa: SLF001
                if self._rank is None:
                    data = b""
        if not data:
            self._hub._hang_up(self._sock, self._rank)  # noqa: SLF001


def _listen(bind_host: str, backlog: int) -> socket.socket:
    """Listen on the driver's own interface, or on all where that is not ours (behind address translation)."""
    family = socket.AF_INET6 if ":" in bind_host else socket.AF_INET
    try:
        return socket.create_server((bind_host, 0), family=family, backlog=max(backlog, 16))
    except OSError:
        return socket.create_server(("", 0), backlog=max(backlog, 16))


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel notice a host that vanished, in about 15 s; a stopped process still answers."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3)):
        if option := getattr(socket, name, None):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def dial(address: Sequence[Any], key: bytes, rank: int, host: str, timeout: float) -> socket.socket:
    """Return a proven connection to the hub, from the task's side; OSError or PeerError if there is none."""
    sock = socket.create_connection((address[0], int(address[1])), timeout=timeout)
    try:
        prove_as_client(sock, key, PURPOSE)
        sock.settimeout(None)
        keep_alive(sock)
        send(sock, {"join": rank, "host": host})
    except BaseException:
        sock.close()
        raise
    return sock
