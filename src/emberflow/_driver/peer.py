"""One task's connection at the driver's hub: its messages in, and what waits to be sent out."""

import threading
import time
from collections import deque
from collections.abc import Iterable

from emberflow._protocol.codec import Message
from emberflow._protocol.frames import frames_of, pack_encoded
from emberflow._protocol.sealed_socket import SealedSocket

READ = 1 << 16  # bytes; most messages are smaller
MAX_UNSENT = 64 * 1024 * 1024  # bytes; a task that is further behind when more is sent is given up
_VIEWS_AT_ONCE = 64  # buffers in one system call; the kernel refuses more than 1,024 (IOV_MAX)


class Peer:
    """One authenticated connection. Nothing here waits: what the kernel does not take stays in the buffer.

    A message is sent to its end before another begins, or the connection is closed: a frame is never cut.

    Attributes:
        rank: The node's number, once it has joined.
        why_gone: Why the hub closed it, where it was the hub.
    """

    def __init__(self, sock: SealedSocket) -> None:
        self.sock = sock
        self.rank: int | None = None
        self.why_gone = ""
        self._frames = frames_of(sock)
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._waits_since = 0.0
        self._is_broken = False
        self._lock = threading.Lock()  # any thread may send, the hub's thread sends the rest
        sock.setblocking(False)

    def send(self, message: bytes) -> bool:
        """Send as much of an encoded message as the kernel takes now; tell whether something is left, for `flush`."""
        with self._lock:
            if self._is_broken:
                return False
            if self._unsent_bytes > MAX_UNSENT:
                self.why_gone = f"it is {self._unsent_bytes >> 20} MB behind with what the driver sends"
                self._break()
                return True  # the hub's thread must close it
            if not self._unsent:
                self._waits_since = time.monotonic()
            data = pack_encoded(message, self.sock.sealer)
            self._unsent.append(memoryview(data))
            self._unsent_bytes += len(data)
            return self._push()

    def flush(self) -> bool:
        """Send what the kernel takes now; tell whether something is left."""
        with self._lock:
            return self._push()

    def waits_since(self) -> float | None:
        """Return since when the other side has read nothing of what waits to be sent; None if nothing waits."""
        with self._lock:
            return self._waits_since if self._unsent else None

    def read(self) -> Iterable[Message] | None:
        """Return the messages that are complete by now; None at the end. Reading them may raise `PeerError`."""
        try:
            data = self.sock.recv(READ)
        except BlockingIOError:
            return ()
        except OSError:
            return None
        return self._frames.feed(data) if data else None

    def close(self) -> None:
        """Close the connection. Messages that are sent later are dropped."""
        with self._lock:
            self._break()
            self.sock.close()

    def _push(self) -> bool:
        while self._unsent:
            try:
                sent = self.sock.sendmsg([self._unsent[place] for place in range(self._views())])
            except BlockingIOError:
                return True
            except OSError:  # it is gone: the hub's thread reads that too
                self._break()
                return False
            self._waits_since = time.monotonic()
            self._unsent_bytes -= sent
            while sent:
                first = self._unsent.popleft()
                if sent < len(first):
                    self._unsent.appendleft(first[sent:])
                sent -= min(sent, len(first))
        return False

    def _views(self) -> int:
        return min(len(self._unsent), _VIEWS_AT_ONCE)

    def _break(self) -> None:
        self._is_broken = True
        self._unsent.clear()
        self._unsent_bytes = 0
