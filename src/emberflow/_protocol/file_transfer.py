"""How large values travel between driver and tasks: whole files over a sealed connection, in chunks.

A task asks for the function (`FETCH`) or brings its node's value (`VALUE`). Neither side holds more than one chunk in
memory, and each wait ends after the timeout of the socket.
"""

import io
import struct
from collections.abc import Callable
from typing import IO

from emberflow._protocol.byte_blocks import LENGTH
from emberflow._protocol.sealed_socket import SealedSocket

FETCH, VALUE = 1, 2  # requests: of a task's function, and to send a value
CHUNK = 1 << 20  # bytes in memory at a time, whatever the size of the file
_REQUEST = struct.Struct("!BIQ")


class KeepError(OSError):
    """What arrives cannot be written to the local disk."""


def send_request(sock: SealedSocket, kind: int, rank: int, size: int = 0) -> None:
    """Ask for a file, or announce one."""
    sock.send_record(_REQUEST.pack(kind, rank, size))


def receive_request(sock: SealedSocket) -> tuple[int, int, int] | None:
    """Return kind, rank and size of the next request, or None when the other side has closed the connection."""
    request = sock.receive_record_if_any(_REQUEST.size)
    if request is None:
        return None
    kind, rank, size = _REQUEST.unpack(request)
    return kind, rank, size


def send_size(sock: SealedSocket, size: int) -> None:
    """Announce a file's size, or confirm it."""
    sock.send_record(LENGTH.pack(size))


def receive_size(sock: SealedSocket) -> int:
    """Return what `send_size` sent."""
    return int(LENGTH.unpack(sock.receive_record(LENGTH.size))[0])


def send_file(sock: SealedSocket, read_at: Callable[[int, int], bytes], size: int) -> None:
    """Send a file's first `size` bytes.

    Args:
        sock: The connection.
        read_at: Returns so many bytes of the file (its first argument) from a position on (its second).
        size: The file's size.
    """
    sent = 0
    while sent < size:
        wanted = min(CHUNK, size - sent)
        chunk = read_at(wanted, sent)
        if len(chunk) < wanted:
            raise OSError(f"the file ends after {sent + len(chunk)} of {size} bytes")
        sock.send_chunks(memoryview(chunk))
        sent += wanted


def receive_file(sock: SealedSocket, file: IO[bytes] | io.RawIOBase, size: int) -> None:
    """Write the next `size` bytes into a file.

    Raises:
        KeepError: The file could not be written.
        OSError: The connection broke, or was silent for too long.
        TamperedError: It was altered on the way.
    """
    buffer = memoryview(bytearray(min(CHUNK, size)))
    left = size
    while left:
        count = min(CHUNK, left)
        try:
            sock.receive_chunks(buffer[:count])
        except TimeoutError as error:
            raise TimeoutError(f"{size - left:,} of {size:,} bytes received") from error
        left -= count
        try:
            file.write(buffer[:count])
            if not left:
                file.flush()
        except OSError as error:
            raise KeepError(*error.args) from error
