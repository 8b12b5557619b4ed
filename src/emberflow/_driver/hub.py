"""The driver's connections to the tasks of one attempt: which have joined, what they send, what they exchange."""

import queue
import resource
import selectors
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

from emberflow._driver.events import Events, Formed, Gone, Joined, JoinedAgain, NodeSent
from emberflow._driver.peer import Peer
from emberflow._driver.rendezvous import Rendezvous
from emberflow._plan import deadlines
from emberflow._protocol import sockets
from emberflow._protocol.acceptor import Acceptor
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import (
    Admission,
    Cluster,
    Gather,
    Join,
    LogLines,
    OpenValues,
    Quit,
    StartupFacts,
)
from emberflow._protocol.messages import encode
from emberflow._protocol.sealed import TamperedError
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._task.driver_connection import PURPOSE
from emberflow.config import PortRange
from emberflow.errors import ClusterError, PeerError

SPARE_FILES = 192  # open files that the driver needs beside one connection per node
EVENTS_BEHIND = 200  # waiting events, of up to 64 kB, above which nodes' output is dropped


class Hub:
    """Listens for the tasks of one attempt, and puts what they send into `events`.

    Exchanges among ranks are answered here and make no event. Sending waits for no task: each has its own buffer.

    Args:
        bind_host: The address to listen on.
        key: The attempt's secret. A task of an earlier attempt holds another one and is refused.
        ranks: How many nodes the attempt has.
        ports: First and last port that it may listen on; None for any.
        is_optional: Whether tasks can do without: as many are admitted as there is room for, and a task whose
            connection has closed may join again.

    Attributes:
        events: What the attempt handles.
        on_values: Takes over connections for large values, which share the hub's port.
        rendezvous: The exchanges under way.
    """

    def __init__(
        self,
        bind_host: str,
        key: bytes,
        ranks: int,
        ports: PortRange | None = None,
        *,
        is_optional: bool = False,
    ) -> None:
        room = _room_for_connections()
        if not is_optional:
            _check_open_files(ranks, room)
        self._is_optional = is_optional
        self._room = min(ranks, room)
        self.events: Events = queue.Queue()
        self.on_values: Callable[[SealedSocket], None] = SealedSocket.close
        self._ranks = ranks
        self._peers: dict[int, Peer] = {}
        self._admitted: set[int] = set()
        self._copies: dict[Peer, int] = {}
        self.rendezvous = Rendezvous(ranks)
        self._left_out: Counter[int] = Counter()
        self._is_quitting = False
        self._is_closing = False
        self._new: queue.SimpleQueue[SealedSocket] = queue.SimpleQueue()
        self._slow: queue.SimpleQueue[Peer] = queue.SimpleQueue()
        self._writing: set[Peer] = set()
        listener = sockets.listen(bind_host, ports=ports, what="the driver's connections to nodes")
        self.port = int(listener.getsockname()[1])
        # Sockets, not a pipe: a late write after close() fails, also when another file has got the same descriptor.
        self._wake_r, self._wake_w = socket.socketpair()
        self._wake_w.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        self._loop_thread = threading.Thread(target=self._loop, name="emberflow-hub", daemon=True)
        self._loop_thread.start()
        self._acceptor = Acceptor(listener, key=key, purpose=PURPOSE, admit=self._admit, reserved=self._room)

    def send(self, rank: int, message: Message) -> None:
        """Send to one task; if it is gone, a `Gone` event says so."""
        self._send([rank], message)

    def broadcast(self, message: Message) -> None:
        """Send to every task that is still connected."""
        self._send(list(self._peers), message)

    def quit_all(self) -> None:
        """Tell every task to end, also those that join later: Spark may start a failed stage again."""
        self._is_quitting = True
        self.broadcast(Quit())
        self._deliver(list(self._copies), Quit())

    def copies(self) -> set[int]:
        """Return the ranks of which a second task is connected, which waits to be told to end."""
        return set(list(self._copies.values()))  # noqa: C414 - a copy in one step: another thread may add one

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._acceptor.close()
        self._is_closing = True
        self._wake()
        self._loop_thread.join()

    def _loop(self) -> None:
        while not self._is_closing:
            for key, events in self._selector.select(self._send_timeout()):
                if key.data is None:
                    self._wake_r.recv(4096)
                    continue
                if events & selectors.EVENT_WRITE and not key.data.flush():
                    self._select(key.data, is_slow=False)
                if events & selectors.EVENT_READ:
                    self._read(key.data)
            self._add_new_peers()
            self._drop_stalled()
        self._close_all()

    def _send(self, ranks: list[int], message: Message) -> None:
        self._deliver([peer for rank in ranks if (peer := self._peers.get(rank))], message)

    def _deliver(self, peers: Iterable[Peer], message: Message) -> None:
        data = encode(message)
        slow = [peer for peer in peers if peer.send(data)]
        for peer in slow:
            self._slow.put(peer)
        if slow:
            self._wake()

    def _admit(self, sock: SealedSocket) -> None:
        self._new.put(sock)
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):  # the hub has closed meanwhile, or many wake it already
            self._wake_w.send(b"x")

    def _add_new_peers(self) -> None:
        """Listen to authenticated connections, and continue to send to those that read slowly."""
        while not self._new.empty():
            peer = Peer(self._new.get())
            self._selector.register(peer.sock, selectors.EVENT_READ, peer)
        while not self._slow.empty():
            self._select(self._slow.get(), is_slow=True)

    def _select(self, peer: Peer, *, is_slow: bool) -> None:
        if peer.sock.fileno() < 0:
            return
        if peer.why_gone:
            self._disconnect(peer)
            return
        (self._writing.add if is_slow else self._writing.discard)(peer)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_slow else 0)
        self._selector.modify(peer.sock, events, peer)

    def _send_timeout(self) -> float | None:
        """Return the seconds until the next task is given up, if one is slow."""
        waiting = [since for peer in self._writing if (since := peer.waits_since()) is not None]
        return (
            max(min(waiting) + deadlines.SEND_TIMEOUT - time.monotonic(), deadlines.SHORTEST_WAIT)
            if waiting
            else None
        )

    def _drop_stalled(self) -> None:
        now = time.monotonic()
        for peer in list(self._writing):
            since = peer.waits_since()
            if since is not None and now - since >= deadlines.SEND_TIMEOUT:
                peer.why_gone = f"it has not read what the driver sent for {deadlines.SEND_TIMEOUT:g} s"
                self._disconnect(peer)

    def _read(self, peer: Peer) -> None:
        try:
            messages = peer.read()
            for message in messages or ():
                if peer.rank is None:
                    self._join(peer, message)
                else:
                    self._on_message(peer.rank, message)
        except TamperedError as error:
            peer.why_gone = error.problem
            messages = None
        except (PeerError, ValueError, KeyError, TypeError):  # not our protocol: all others must continue
            messages = None
        if messages is None:
            self._disconnect(peer)

    def _close_all(self) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                key.data.close()
        self._selector.close()
        while not self._new.empty():
            self._new.get().close()
        self._wake_r.close()
        self._wake_w.close()

    def _join(self, peer: Peer, message: Message) -> None:
        """Take the first message of a connection, and admit the first task of each rank.

        Spark may start a task again, or a copy of it: a second node would disturb the first.
        """
        if isinstance(message, OpenValues):
            self._selector.unregister(peer.sock)
            peer.sock.setblocking(True)
            self.on_values(peer.sock)
            return
        if not isinstance(message, Join) or not 0 <= message.rank < self._ranks:
            raise PeerError(
                f"A task must join with a rank below {self._ranks}. Received: {message!r:.80}.",
                fix="Check that driver and executors run the same version of emberflow.",
            )
        is_first = message.rank not in self._admitted and len(self._peers) < self._room
        self._deliver([peer], Admission(is_first))
        if is_first:
            self._admitted.add(message.rank)
            peer.rank = message.rank
            self._peers[message.rank] = peer
            self.events.put(Joined(message.rank, message.host))
        else:
            self._copies[peer] = message.rank
            self.events.put(JoinedAgain(message.rank))
        if self._is_quitting:
            self._deliver([peer], Quit())

    def _on_message(self, rank: int, message: Message) -> None:
        match message:
            case Gather() | StartupFacts():
                for ranks, answer in self.rendezvous.bring(rank, message):
                    self._send(ranks, answer)
                    if isinstance(answer, Cluster):
                        self.events.put(Formed(answer.endpoints))
            case LogLines(text):
                self._on_log_lines(rank, text)
            case _:
                self.events.put(NodeSent(rank, message))

    def _on_log_lines(self, rank: int, text: str) -> None:
        """Pass a node's output on; if the attempt is far behind it is counted, not kept."""
        if self.events.qsize() > max(EVENTS_BEHIND, 4 * self._ranks):
            self._left_out[rank] += text.count("\n") + 1
            return
        note = self._note_of_left_out(rank)
        self.events.put(NodeSent(rank, LogLines(f"{note}\n{text}" if note else text)))

    def _note_of_left_out(self, rank: int) -> str:
        lines = self._left_out.pop(rank, 0)
        return f"... {lines} lines left out here; all are in the executor's log" if lines else ""

    def _disconnect(self, peer: Peer) -> None:
        self._selector.unregister(peer.sock)
        self._writing.discard(peer)
        self._copies.pop(peer, None)
        peer.close()
        if peer.rank is not None:
            del self._peers[peer.rank]
            if self._is_optional:
                self._admitted.discard(peer.rank)
            if note := self._note_of_left_out(peer.rank):
                self.events.put(NodeSent(peer.rank, LogLines(note)))
            self.events.put(Gone(peer.rank, peer.why_gone))


def _room_for_connections() -> int:
    """Return how many connections this process may hold."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit in (resource.RLIM_INFINITY, -1) else max(limit - SPARE_FILES, 1)


def _check_open_files(ranks: int, room: int) -> None:
    """Refuse a run with more connections than this process may hold."""
    if ranks > room:
        raise ClusterError(
            f"The driver keeps one connection to each node. Received: {ranks} nodes, and a limit of "
            f"{room + SPARE_FILES} open files.",
            fix=f"Raise the limit before the driver starts: ulimit -n {ranks + SPARE_FILES + 1024}.",
        )
