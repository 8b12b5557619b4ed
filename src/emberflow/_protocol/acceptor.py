"""Accepts authenticated connections: one thread and one selector for all handshakes of a listening socket.

A connection that is not authenticated costs a descriptor, never a thread. The number of simultaneous handshakes
follows from the limit of open files. Above that number each new connection drops one: not the oldest, since a client
that connects fast enough could then lock out all others for ever, but a random one, preferably from the address that
has most of them. A legitimate client that is dropped tries again (`sockets.dial`), and succeeds after a few tries
however many idle connections there are.
"""

import contextlib
import errno
import logging
import os
import resource
import secrets
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from emberflow._plan import deadlines
from emberflow._protocol.handshake import ANSWER_SIZE, REFUSED, Challenge
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._protocol.sockets import keep_alive

log = logging.getLogger("emberflow")

_MARGIN = 64  # open files that always remain for the rest of the process
_LEAST, _MOST = 64, 8192  # simultaneous handshakes, independent of the limit of open files
_BATCH = 64  # connections accepted in a row, before clients that have answered are served again
_CANDIDATES = 8  # of so many random handshakes the one is dropped whose address has most
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RESET = struct.pack("ii", 1, 0)  # closed at once, so that the kernel does not keep thousands of connections


@dataclass(eq=False)
class _Handshake:
    sock: socket.socket
    address: str
    challenge: Challenge
    deadline: float
    place: int = 0
    answer: bytearray = field(default_factory=bytearray)


class Acceptor:
    """Accepts connections from its creation to `close`, each with a handshake of at most `HANDSHAKE_TIMEOUT` seconds.

    Args:
        listener: A listening socket; the acceptor closes it.
        key: The shared secret.
        purpose: What connections are for; clients must say the same.
        admit: Called on the acceptor's thread with each authenticated connection, a blocking socket, which belongs
            to the callee. It must not block.
        reserved: Open files that this process will need beside the handshakes.

    Attributes:
        refused: Connections that were dropped or failed the handshake so far.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        key: bytes,
        purpose: str,
        admit: Callable[[SealedSocket], None],
        reserved: int = 0,
    ) -> None:
        self.refused = 0
        self._listener = listener
        self._key = key
        self._purpose = purpose
        self._admit = admit
        self._room = handshakes_at_once(reserved)
        self._by_age: dict[socket.socket, _Handshake] = {}
        self._by_place: list[_Handshake] = []
        self._per_address: Counter[str] = Counter()
        # Sockets, not a pipe: a late write after close() fails instead of reaching a new user of the descriptor.
        self._wake_r, self._wake_w = socket.socketpair()
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        self._selector.register(listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="emberflow-acceptor", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """The number of handshakes in progress."""
        return len(self._by_age)

    def close(self) -> None:
        """Stop listening and drop all handshakes; admitted connections stay. May be called twice."""
        with contextlib.suppress(OSError):
            self._wake_w.send(b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._wake_w.close()

    def _run(self) -> None:
        try:
            while self._step():
                pass
        finally:
            for handshake in list(self._by_age.values()):
                self._remove(handshake)
                handshake.sock.close()
            self._selector.close()
            self._listener.close()
            self._wake_r.close()

    def _step(self) -> bool:
        """Serve the connections that are ready; False when it is time to close."""
        oldest = next(iter(self._by_age.values()), None)
        timeout = None if oldest is None else max(oldest.deadline - time.monotonic(), 0.0)
        ready = [key for key, _ in self._selector.select(timeout)]
        for key in ready:
            if key.fileobj is self._wake_r:
                return False
            if key.data is not None:
                self._read(key.data)
        self._expire()
        if any(key.fileobj is self._listener for key in ready):
            self._accept()  # last: a client that has answered must not be dropped for a new one
        return True

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _OUT_OF_FILES:
                    continue  # the client has closed it already
                if not self._by_place:
                    threading.Event().wait(deadlines.OUT_OF_FILES_PAUSE)
                    return
                self._drop(self._choose_to_drop())
                continue
            self._start(sock, str(address[0]) if address else "")  # clients of a Unix socket have no address
            if len(self._by_place) > self._room:
                self._drop(self._choose_to_drop())

    def _start(self, sock: socket.socket, address: str) -> None:
        challenge = Challenge(self._key, self._purpose)
        sock.setblocking(False)
        try:
            sock.send(challenge.greeting)  # some bytes always fit into a fresh socket
        except OSError:
            sock.close()
            return
        handshake = _Handshake(
            sock, address, challenge, time.monotonic() + deadlines.HANDSHAKE_TIMEOUT, len(self._by_place)
        )
        self._by_age[sock] = handshake
        self._by_place.append(handshake)
        self._per_address[address] += 1
        self._selector.register(sock, selectors.EVENT_READ, handshake)

    def _read(self, handshake: _Handshake) -> None:
        try:
            data = handshake.sock.recv(ANSWER_SIZE - len(handshake.answer))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        handshake.answer += data
        if not data:
            self._drop(handshake)
        elif len(handshake.answer) == ANSWER_SIZE:
            self._verify(handshake)

    def _verify(self, handshake: _Handshake) -> None:
        self._remove(handshake)
        sock, answer = handshake.sock, bytes(handshake.answer)
        reply = handshake.challenge.reply_to(answer)
        self.refused += reply == REFUSED
        try:
            sock.send(reply)
            sock.setblocking(True)
            keep_alive(sock)
        except OSError:  # the client has closed it already
            sock.close()
            return
        if reply == REFUSED:
            sock.close()
            return
        peer = f"the client at {handshake.address or 'this host'} ({self._purpose})"
        admitted = SealedSocket(sock, handshake.challenge.seals_after(answer, peer))
        try:
            self._admit(admitted)
        except Exception:
            log.exception("A connection for %r could not be admitted.", self._purpose)
            admitted.close()

    def _expire(self) -> None:
        now = time.monotonic()
        while self._by_age and (oldest := next(iter(self._by_age.values()))).deadline <= now:
            self._drop(oldest)

    def _choose_to_drop(self) -> _Handshake:
        """Return the handshake to drop: random, so that no client is locked out."""
        some = [self._by_place[secrets.randbelow(len(self._by_place))] for _ in range(_CANDIDATES)]
        return max(some, key=lambda handshake: self._per_address[handshake.address])

    def _drop(self, handshake: _Handshake) -> None:
        self.refused += 1
        self._remove(handshake)
        with contextlib.suppress(OSError):
            handshake.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        handshake.sock.close()

    def _remove(self, handshake: _Handshake) -> None:
        self._selector.unregister(handshake.sock)
        del self._by_age[handshake.sock]
        last = self._by_place.pop()
        if last is not handshake:
            self._by_place[handshake.place] = last
            last.place = handshake.place
        self._per_address[handshake.address] -= 1
        if not self._per_address[handshake.address]:
            del self._per_address[handshake.address]


def handshakes_at_once(reserved: int = 0) -> int:
    """Return how many handshakes may run at once: half of the open files that are not needed otherwise."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit in (resource.RLIM_INFINITY, -1):
        return _MOST
    left = limit - len(os.listdir("/dev/fd")) - reserved - _MARGIN  # noqa: PTH208 - paths are not needed
    return max(_LEAST, min(left // 2, _MOST))
