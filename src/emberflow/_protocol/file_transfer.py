"""How large values travel between driver and tasks: whole files over an authenticated connection, in chunks.

A task asks for the function (`FETCH`) or brings its node's value (`VALUE`). Neither side holds more than one chunk in
memory, and each wait ends after the timeout of the socket.
"""

import os
import socket
import struct
from typing import IO

from emberflow._protocol.byte_blocks import LENGTH, receive_exactly

FETCH, VALUE = 1, 2  # requests: of a task's function, and to send a value
CHUNK = 1 << 20  # bytes in memory at a time, whatever the size of the file
_REQUEST = struct.Struct("!BIQ")


class KeepError(OSError):
    """What arrives cannot be written to the local disk."""


def send_request(sock: socket.socket, kind: int, rank: int, size: int = 0) -> None:
    """Ask for a file, or announce one."""
    sock.sendall(_REQUEST.pack(kind, rank, size))


def receive_request(sock: socket.socket) -> tuple[int, int, int] | None:
    """Return kind, rank and size of the next request, or None when the other side has closed the connection."""
    first = sock.recv(1)
    if not first:
        return None
    kind, rank, size = _REQUEST.unpack(first + receive_exactly(sock, _REQUEST.size - 1))
    return kind, rank, size


def send_size(sock: socket.socket, size: int) -> None:
    """Announce a file's size, or confirm it."""
    sock.sendall(LENGTH.pack(size))


def receive_size(sock: socket.socket) -> int:
    """Return what `send_size` sent."""
    return int(LENGTH.unpack(receive_exactly(sock, LENGTH.size))[0])


def send_file(sock: socket.socket, fd: int, size: int) -> None:
    """Send a file's first `size` bytes; its position stays, so that several threads may send it at once."""
    sent = 0
    while sent < size:
        chunk = os.pread(fd, min(CHUNK, size - sent), sent)
        if not chunk:
            raise OSError(f"the file ends after {sent} of {size} bytes")
        sock.sendall(chunk)
        sent += len(chunk)


def receive_file(sock: socket.socket, file: IO[bytes], size: int) -> None:
    """Write the next `size` bytes into a file.

    Raises:
        KeepError: The file could not be written.
        OSError: The connection broke, or was silent for too long.
    """
    buffer = memoryview(bytearray(min(CHUNK, size)))
    left = size
    while left:
        try:
            count = sock.recv_into(buffer[: min(CHUNK, left)])
        except TimeoutError as error:
            raise TimeoutError(f"{size - left:,} of {size:,} bytes received") from error
        if not count:
            raise ConnectionResetError("the other side has closed the connection")
        left -= count
        try:
            file.write(buffer[:count])
            if not left:
                file.flush()
        except OSError as error:
            raise KeepError(*error.args) from error
