"""The driver's end of the wires to all nodes of one attempt: who joined, what they say, what they all agree on."""

import queue
import resource
import selectors
import socket
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from emberflow._wire import sockets
from emberflow._wire.frames import Frames, Message, pack, send
from emberflow._wire.handshake import prove_as_server
from emberflow.errors import ClusterError, PeerError

PURPOSE = "node to driver"
DONE = "done"  # the last gathering of a rank: it takes part in no other any more
SEND_TIMEOUT = 10.0
PROVING_AT_ONCE = 64  # threads; a node proves itself in milliseconds, so whoever takes longest gives way
EVENTS_BEHIND = 200  # waiting events, of up to READ bytes, above which nodes' output is left out
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
        _check_open_files(ranks)
        self.events: queue.Queue[Message] = queue.Queue()
        self._ranks = ranks
        self._key = key
        self._peers: dict[int, socket.socket] = {}
        self._gathers: dict[str, dict[int, Any]] = {}
        self._wanted: dict[str, int | None] = {}
        self._sending = threading.Lock()
        self._left_out: Counter[int] = Counter()
        self._is_dismissed = False
        self._new: queue.SimpleQueue[socket.socket | None] = queue.SimpleQueue()
        self._proving: OrderedDict[socket.socket, None] = OrderedDict()
        self._listener = sockets.listen(bind_host, backlog=max(ranks, 1024))
        # Sockets, not a pipe: a late write after close() fails instead of reaching whoever got the descriptor.
        self._wake_r, self._wake_w = socket.socketpair()
        self._door = ThreadPoolExecutor(PROVING_AT_ONCE, thread_name_prefix="emberflow-door")
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_r, selectors.EVENT_READ, self._seat_newcomers)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self.port = int(self._listener.getsockname()[1])
        self._loop_thread = threading.Thread(target=self._loop, name="emberflow-hub", daemon=True)
        self._loop_thread.start()

    def send(self, rank: int, message: Message) -> None:
        """Send to one node; if it is gone, its ``gone`` event says so."""
        self._send([rank], message)

    def broadcast(self, message: Message) -> None:
        """Send to every node that is still there."""
        self._send(list(self._peers), message)

    def dismiss(self) -> None:
        """Tell every node to end, also those that come later: Spark may start a failed stage again."""
        self._is_dismissed = True
        self.broadcast({"quit": True})

    def close(self) -> None:
        """Stop listening and hang up on everybody."""
        self._new.put(None)
        self._wake_w.send(b"x")
        self._loop_thread.join()
        self._door.shutdown(wait=False, cancel_futures=True)

    def _loop(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data() is False:
                    self._close_all()
                    return

    def _send(self, ranks: list[int], message: Message) -> None:
        data = pack(message)
        with self._sending:  # the run's own thread and the hub's must not cut into each other's messages
            for rank in ranks:
                if peer := self._peers.get(rank):
                    with suppress(OSError):
                        peer.sendall(data)

    def _accept(self) -> None:
        with suppress(OSError):  # a caller that is gone again
            sock, _ = self._listener.accept()
            self._proving[sock] = None
            self._door.submit(self._prove, sock)
        if len(self._proving) > PROVING_AT_ONCE:
            with suppress(OSError, KeyError):  # it has just ended by itself
                self._proving.popitem(last=False)[0].shutdown(socket.SHUT_RDWR)

    def _prove(self, sock: socket.socket) -> None:
        """Let a newcomer in if it has the key; in a thread, so that a silent one keeps nobody waiting."""
        try:
            prove_as_server(sock, self._key, PURPOSE)
            sock.settimeout(SEND_TIMEOUT)
            sockets.keep_alive(sock)
        except (PeerError, OSError):
            sock.close()
            return
        finally:
            self._proving.pop(sock, None)
        self._new.put(sock)
        with suppress(OSError):  # the hub has closed meanwhile
            self._wake_w.send(b"x")

    def _seat_newcomers(self) -> bool:
        """Listen to those who proved the key; False when it is time to close."""
        self._wake_r.recv(4096)
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
        for stranger in list(self._proving):
            with suppress(OSError):
                stranger.shutdown(socket.SHUT_RDWR)  # its thread closes it
        while not self._new.empty():
            if sock := self._new.get():
                sock.close()
        self._wake_w.close()

    def _join(self, sock: socket.socket, message: Message) -> int:
        """Give a newcomer its seat, unless it is taken: then Spark has started that task a second time."""
        rank = int(message["join"])
        if rank in self._peers or not 0 <= rank < self._ranks:
            raise PeerError(
                f"A rank joins once. Received: rank={rank}.", fix="Look for a second copy of the task."
            )
        self._peers[rank] = sock
        self.events.put({"rank": rank, "joined": message["host"]})
        if self._is_dismissed:
            self.send(rank, {"quit": True})
        return rank

    def _hear(self, rank: int, message: Message) -> None:
        if "gather" not in message:
            if "log" not in message or self._has_room_for(rank, message):
                self.events.put(message | {"rank": rank})
            return
        tag = message["gather"]
        self._gathers.setdefault(tag, {})[rank] = message["value"]
        self._wanted[tag] = message.get("of")
        self._answer(tag)
        if tag == DONE:  # whoever is done is not waited for by others
            for other in [other for other, of in self._wanted.items() if of is not None]:
                self._answer(other)

    def _answer(self, tag: str) -> None:
        """Give everybody who asked what all have brought, once none is missing."""
        values, of = self._gathers[tag], self._wanted[tag]
        done = self._gathers.get(DONE) if of is not None else None
        there = len(values.keys() | {rank for rank in done if rank < of}) if done and of else len(values)
        if there < (of or self._ranks):
            return
        ordered = [values[each] for each in sorted(values)]
        self._send(list(values), {"gathered": tag, "values": ordered})
        del self._gathers[tag], self._wanted[tag]
        self.events.put({"gathered": tag})

    def _has_room_for(self, rank: int, message: Message) -> bool:
        """Tell whether a node's output can be shown; if the driver is far behind it is counted, not kept."""
        if self.events.qsize() > max(EVENTS_BEHIND, 4 * self._ranks):
            self._left_out[rank] += message["log"].count("\n") + 1
            return False
        if note := self._note_of_left_out(rank):
            message["log"] = f"{note}\n{message['log']}"
        return True

    def _note_of_left_out(self, rank: int) -> str:
        lines = self._left_out.pop(rank, 0)
        return f"... {lines} lines left out here; all are in the executor's log" if lines else ""

    def _hang_up(self, sock: socket.socket, rank: int | None) -> None:
        self._selector.unregister(sock)
        sock.close()
        if rank is not None:
            del self._peers[rank]
            if note := self._note_of_left_out(rank):
                self.events.put({"rank": rank, "log": note})
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
        try:
            for message in self._frames.feed(data):
                if self._rank is None:
                    self._rank = self._hub._join(self._sock, message)  # noqa: SLF001 - a part of the hub
                else:
                    self._hub._hear(self._rank, message)  # noqa: SLF001
        except (PeerError, ValueError, KeyError, TypeError):  # not our protocol: all others must go on
            data = b""
        if not data:
            self._hub._hang_up(self._sock, self._rank)  # noqa: SLF001


def _check_open_files(ranks: int) -> None:
    """Refuse a gang whose connections this process may not hold."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = ranks + 2 * PROVING_AT_ONCE + 64
    if limit not in (resource.RLIM_INFINITY, -1) and limit < needed:
        raise ClusterError(
            f"The driver keeps one connection to each node. Received: {ranks} nodes, and a limit of {limit} open "
            "files.",
            fix=f"Raise the limit before the driver starts: ulimit -n {needed + 1024}.",
        )


def dial(address: Sequence[Any], key: bytes, rank: int, host: str, timeout: float) -> socket.socket:
    """Return a proven connection to the hub, from the task's side; OSError or PeerError if there is none."""
    sock = sockets.dial(address[0], int(address[1]), key, PURPOSE, timeout)
    try:
        send(sock, {"join": rank, "host": host})
    except BaseException:
        sock.close()
        raise
    return sock
