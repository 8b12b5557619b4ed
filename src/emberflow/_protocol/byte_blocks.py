"""Exact numbers of bytes on a blocking socket: reads that are complete, and blocks with their length in front.

Every frame with a fixed header is read with these functions. Two places have their own: `frames` assembles messages
that arrive in pieces, and the ring (`strategies/transport/ring_link.py`) sends and receives at the same time.
"""

import socket
import struct

LENGTH = struct.Struct("!Q")  # what stands in front of a block

_CLOSED = "the other side has closed the connection"


def fill(sock: socket.socket, view: memoryview) -> None:
    """Fill a buffer; ConnectionResetError when the stream ends before that. The socket's timeout is for each read."""
    filled = 0
    while filled < view.nbytes:
        count = sock.recv_into(view[filled:])
        if not count:
            raise ConnectionResetError(_CLOSED)
        filled += count


def receive_exactly(sock: socket.socket, size: int) -> bytearray:
    """Return exactly so many bytes."""
    data = bytearray(size)
    fill(sock, memoryview(data))
    return data


def send_block(sock: socket.socket, data: bytes) -> None:
    """Send a block and its length."""
    sock.sendall(LENGTH.pack(len(data)))
    sock.sendall(data)


def receive_block(sock: socket.socket) -> bytearray | None:
    """Return the next block; None when the other side has closed the connection before it."""
    first = sock.recv(1)
    if not first:
        return None
    (size,) = LENGTH.unpack(first + receive_exactly(sock, LENGTH.size - 1))
    return receive_exactly(sock, size)
