"""Record batches between a feeding task and a node: messages, and Arrow data as blocks with their length in front.

    length | schema    length | record batch ...    0

Messages and lengths are sealed records, always. Arrow data is encrypted where the run encrypts. A stream without its
end, a length of 0, is that of a sender that died.
"""

import contextlib
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from emberflow import errors
from emberflow._protocol.byte_blocks import LENGTH
from emberflow._protocol.codec import Message
from emberflow._protocol.frames import pack, receive_one
from emberflow._protocol.live_messages import FeedRefused
from emberflow._protocol.sealed_socket import SealedSocket, send_steadily
from emberflow._protocol.sockets import readable
from emberflow.errors import EmberflowError, PeerError

FEED = "feed"  # the purpose of the connections
_TIMEVAL = struct.Struct("ll")  # seconds and microseconds, as the kernel takes them
_DISCARD = 1 << 20  # bytes read at a time from a sender whose rows are not wanted


class BatchConnection:
    """One authenticated connection; one thread at a time may send, one receive.

    Args:
        sock: The connected socket, which it closes.
        timeout: Seconds without a byte after which an incomplete block, in either direction, is a TimeoutError. The
            wait for the beginning of a message or block has none: it ends with the other side's process or host.
        encrypt: Whether Arrow data is encrypted; both sides must say the same.
    """

    def __init__(self, sock: SealedSocket, timeout: float, *, encrypt: bool) -> None:
        self._sock = sock
        self._encrypts = encrypt
        # The kernel's own timeout, and not Python's, which makes a socket non-blocking: so a block of some megabytes
        # arrives by one call, for which this thread needs the interpreter's lock once and not dozens of times.
        sock.settimeout(None)
        limit = _TIMEVAL.pack(int(timeout), int(timeout % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, limit)

    def send(self, message: Message) -> None:
        """Send one message."""
        with _timeouts_named():
            send_steadily(self._sock, memoryview(pack(message, self._sock.sealer)))

    def receive(self) -> Message:
        """Wait for a message.

        Raises:
            EmberflowError: The other side has refused what was sent to it; the error is the one that it names.
            OSError: The connection is closed or broken.
        """
        self._await_first_byte()
        with _timeouts_named():
            message = receive_one(self._sock)
        if isinstance(message, FeedRefused):
            raise _refusal_error(message)
        return message

    def send_schema(self, schema: Any) -> None:
        """Begin a stream of record batches."""
        self._send_block(schema.serialize())

    def send_batch(self, batch: Any) -> None:
        """Send one record batch of the stream."""
        self._send_block(batch.serialize())

    def send_serialized(self, schema: Any, batch: Any) -> None:
        """Send a stream of one record batch that is serialized already."""
        self.send_schema(schema)
        self._send_block(batch)
        self.send_end()

    def send_end(self) -> None:
        """End the stream: all of it has been sent."""
        with _timeouts_named():
            self._sock.send_record(LENGTH.pack(0))

    def send_stream(self, batches: Iterable[Any]) -> None:
        """Send all record batches; errors of their source are not changed.

        Raises:
            EmberflowError: The other side refused them.
            OSError: The connection is closed or broken.
        """
        is_begun = False
        for batch in batches:
            if self.has_input():  # nothing but a refusal comes before the end
                self._await_refusal()
            with self._refusal_first():
                if not is_begun:
                    self.send_schema(batch.schema)
                    is_begun = True
                self.send_batch(batch)
        with self._refusal_first():
            self.send_end()

    def receive_stream(self) -> Iterator[Any]:
        """Yield the record batches of one stream, to its end; an incomplete one is a ConnectionError."""
        schema = None
        while (block := self._receive_block()) is not None:
            if schema is None:
                schema = pa.ipc.read_schema(block)
            else:
                yield pa.ipc.read_record_batch(block, schema)

    def has_input(self) -> bool:
        """Whether something was sent by the other side, or it has closed the connection."""
        return bool(readable([self._sock], 0.0))

    def refuse(self, error: EmberflowError) -> None:
        """Tell the other side why its rows are not used, and read what it still sends until it knows."""
        with contextlib.suppress(OSError):
            self.send(FeedRefused(type(error).__name__, error.problem, error.fix))
            # Closing a socket with unread bytes would reset the connection, and the refusal could be lost.
            self._sock.shutdown(socket.SHUT_WR)
            while self._sock.recv(_DISCARD):
                pass

    def close(self) -> None:
        """Close the connection; a thread that waits for it gets an error."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    @contextlib.contextmanager
    def _refusal_first(self) -> Iterator[None]:
        """Raise the refusal that the other side sent before it stopped reading, if there is one."""
        try:
            yield
        except OSError:
            if self.has_input():
                with contextlib.suppress(OSError):
                    self._await_refusal()
            raise

    def _await_refusal(self) -> None:
        message = self.receive()
        raise PeerError(
            f"Nothing but a refusal may come before all rows are sent. Received: {message!r:.80}.",
            fix="Check that driver and executors run the same version of emberflow.",
        )

    def _send_block(self, block: Any) -> None:
        view = memoryview(block).cast("B")
        with _timeouts_named():
            self._sock.send_record(LENGTH.pack(view.nbytes))
            if self._encrypts:
                self._sock.send_chunks(view)
            else:
                send_steadily(self._sock, view)

    def _receive_block(self) -> Any:
        self._await_first_byte()
        with _timeouts_named():
            (size,) = LENGTH.unpack(self._sock.receive_record(LENGTH.size))
            if not size:
                return None
            block = pa.allocate_buffer(size)
            view = memoryview(block).cast("B")
            if self._encrypts:
                self._sock.receive_chunks(view)
            else:
                _fill(self._sock, view)
        return block

    def _await_first_byte(self) -> None:
        while True:
            with contextlib.suppress(BlockingIOError):  # the kernel's timeout: this wait has none
                if self._sock.recv(1, socket.MSG_PEEK):
                    return
                raise ConnectionResetError("the other side has closed the connection")


def _fill(sock: socket.socket, view: memoryview) -> None:
    """Fill a buffer; the kernel waits for all of it."""
    while view.nbytes:
        count = sock.recv_into(view, 0, socket.MSG_WAITALL)
        if not count:
            raise ConnectionResetError("the other side has closed the connection")
        view = view[count:]


@contextlib.contextmanager
def _timeouts_named() -> Iterator[None]:
    try:
        yield
    except BlockingIOError as error:
        raise TimeoutError("nothing was sent or received within the timeout") from error


def _refusal_error(refused: FeedRefused) -> EmberflowError:
    kind = getattr(errors, refused.error, None)
    is_ours = isinstance(kind, type) and issubclass(kind, EmberflowError)
    return kind(refused.problem, refused.fix) if is_ours and kind else PeerError(refused.problem, refused.fix)
