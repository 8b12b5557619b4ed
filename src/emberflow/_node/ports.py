"""A port that is ours from the moment it is told to others until TensorFlow listens on it."""

import socket


def held_port() -> tuple[socket.socket, int]:
    """Bind a free port without listening; keep the socket for the life of the process.

    TensorFlow binds the same port later: both sockets have SO_REUSEADDR and ours never listens, so the kernel
    lets it. Closing ours first would be a race with every other process on the host.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("", 0))
    return sock, sock.getsockname()[1]
