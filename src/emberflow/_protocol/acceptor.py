"""Lets in whoever proves the key: one thread and one selector for all handshakes of a listening socket.

Strangers cost a descriptor each, never a thread. How many may be in a handshake at once follows from the
limit of open files. Above that number one of them is turned away for each that comes: not the oldest, since
whoever connects fast enough could then lock out everybody else for ever, but a random one, preferably from
the address that has most of them. An honest client that is turned away tries again (`sockets.dial`), so that
it gets in after a few tries however many silent connections there are.
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
from emberflow._protocol.sockets import keep_alive

log = logging.getLogger("emberflow")

_MARGIN = 64  # open files that are left to the rest of the process in any case
_LEAST, _MOST = 64, 8192  # handshakes at once, whatever the limit of open files
_BATCH = 64  # connections taken in one go, before those that have answered are served again
_CANDIDATES = 8  # of so many random strangers the one is turned away whose address has most
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RESET = struct.pack("ii", 1, 0)  # closed at once: the kernel need not remember thousands of them


@dataclass(eq=False)
class _Stranger:
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
            to the callee. It must not wait for anything.
        reserved: Open files that this process will need beside the handshakes.

    Attributes:
        refused: Connections that were turned away so far.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        key: bytes,
        purpose: str,
        admit: Callable[[socket.socket], None],
        reserved: int = 0,
    ) -> None:
        self.refused = 0
        self._listener = listener
        self._key = key
        self._purpose = purpose
        self._admit = admit
        self._room = handshakes_at_once(reserved)
        self._by_age: dict[socket.socket, _Stranger] = {}
        self._by_place: list[_Stranger] = []
        self._per_address: Counter[str] = Counter()
        # Sockets, not a pipe: a late write after close() fails instead of reaching whoever got the descriptor.
        self._wake_r, self._wake_w = socket.socketpair()
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        self._selector.register(listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="emberflow-acceptor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and drop whoever is in a handshake; admitted connections stay. May be called twice."""
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
            for stranger in list(self._by_age.values()):
                self._forget(stranger)
                stranger.sock.close()
            self._selector.close()
            self._listener.close()
            self._wake_r.close()

    def _step(self) -> bool:
        """Serve whoever is ready; False when it is time to close."""
        oldest = next(iter(self._by_age.values()), None)
        timeout = None if oldest is None else max(oldest.deadline - time.monotonic(), 0.0)
        ready = [key for key, _ in self._selector.select(timeout)]
        for key in ready:
            if key.fileobj is self._wake_r:
                return False
            if key.data is not None:
                self._hear(key.data)
        self._expire()
        if any(key.fileobj is self._listener for key in ready):
            self._accept()  # last: whoever has answered must not be turned away for somebody new
        return True

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _OUT_OF_FILES:
                    continue  # a caller that is gone again
                if not self._by_place:
                    threading.Event().wait(deadlines.OUT_OF_FILES_PAUSE)
                    return
                self._turn_away(self._choose())
                continue
            self._greet(sock, str(address[0]))
            if len(self._by_place) > self._room:
                self._turn_away(self._choose())

    def _greet(self, sock: socket.socket, address: str) -> None:
        challenge = Challenge(self._key, self._purpose)
        sock.setblocking(False)
        try:
            sock.send(challenge.greeting)  # some bytes always fit into a fresh socket
        except OSError:
            sock.close()
            return
        stranger = _Stranger(
            sock, address, challenge, time.monotonic() + deadlines.HANDSHAKE_TIMEOUT, len(self._by_place)
        )
        self._by_age[sock] = stranger
        self._by_place.append(stranger)
        self._per_address[address] += 1
        self._selector.register(sock, selectors.EVENT_READ, stranger)

    def _hear(self, stranger: _Stranger) -> None:
        try:
            data = stranger.sock.recv(ANSWER_SIZE - len(stranger.answer))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        stranger.answer += data
        if not data:
            self._turn_away(stranger)
        elif len(stranger.answer) == ANSWER_SIZE:
            self._judge(stranger)

    def _judge(self, stranger: _Stranger) -> None:
        self._forget(stranger)
        sock = stranger.sock
        reply = stranger.challenge.reply_to(bytes(stranger.answer))
        self.refused += reply == REFUSED
        try:
            sock.send(reply)
            sock.setblocking(True)
            keep_alive(sock)
        except OSError:  # it is gone again
            sock.close()
            return
        if reply == REFUSED:
            sock.close()
            return
        try:
            self._admit(sock)
        except Exception:
            log.exception("A connection for %r could not be taken on.", self._purpose)
            sock.close()

    def _expire(self) -> None:
        now = time.monotonic()
        while self._by_age and (oldest := next(iter(self._by_age.values()))).deadline <= now:
            self._turn_away(oldest)

    def _choose(self) -> _Stranger:
        """Return whom to turn away: never the same for sure, so that nobody is locked out."""
        some = [self._by_place[secrets.randbelow(len(self._by_place))] for _ in range(_CANDIDATES)]
        return max(some, key=lambda stranger: self._per_address[stranger.address])

    def _turn_away(self, stranger: _Stranger) -> None:
        self.refused += 1
        self._forget(stranger)
        with contextlib.suppress(OSError):
            stranger.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        stranger.sock.close()

    def _forget(self, stranger: _Stranger) -> None:
        self._selector.unregister(stranger.sock)
        del self._by_age[stranger.sock]
        last = self._by_place.pop()
        if last is not stranger:
            self._by_place[stranger.place] = last
            last.place = stranger.place
        self._per_address[stranger.address] -= 1
        if not self._per_address[stranger.address]:
            del self._per_address[stranger.address]


def handshakes_at_once(reserved: int = 0) -> int:
    """Return how many connections may be in a handshake: half of the open files that nobody else will need."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit in (resource.RLIM_INFINITY, -1):
        return _MOST
    left = limit - len(os.listdir("/dev/fd")) - reserved - _MARGIN  # noqa: PTH208 - paths are not needed
    return max(_LEAST, min(left // 2, _MOST))
