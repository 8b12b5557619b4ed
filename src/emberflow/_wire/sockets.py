"""Sockets between nodes and driver: listening, dialling with proof of the key, noticing a host that is gone."""

import socket

from emberflow._wire.handshake import prove_as_client


def listen(host: str, backlog: int | None = None) -> socket.socket:
    """Listen on the host's own interface, or on all where that is not ours (behind address translation)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, 0), family=family, backlog=backlog)
    except OSError:
        return socket.create_server(("", 0), backlog=backlog)


def dial(host: str, port: int, key: bytes, purpose: str, timeout: float) -> socket.socket:
    """Return a blocking connection that both sides have proven.

    Raises:
        OSError: Nobody listens there.
        PeerError: Whoever listens there does not hold the key.
    """
    sock = socket.create_connection((host, port), timeout=timeout)
    try:
        prove_as_client(sock, key, purpose)
        sock.settimeout(None)
        keep_alive(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel notice a host that vanished, in about 15 s; a stopped process still answers."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3)):
        if option := getattr(socket, name, None):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
