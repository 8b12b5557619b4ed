"""A port that is reserved from the moment its number is sent to others until TensorFlow listens on it."""

import errno
import socket
from dataclasses import dataclass

from emberflow._protocol.port_claims import claim, none_free, ports_to_try
from emberflow.config import PortRange


@dataclass(frozen=True)
class HeldPort:
    """A port that no other process on this host gets; keep it as long as the process runs."""

    port: int
    _socks: tuple[socket.socket, ...]

    def close(self) -> None:
        """Release it."""
        for sock in self._socks:
            sock.close()


def held_port(ports: PortRange | None = None, what: str = "TensorFlow") -> HeldPort:
    """Bind a free port without listening.

    TensorFlow binds the same port later: both sockets have SO_REUSEADDR and this one never listens, so the kernel
    allows it. Closing this one first would be a race with every other process on the host.

    Raises:
        ClusterError: No port of the range is free.
    """
    for port in ports_to_try(ports):
        if held := _hold(port):
            return held
    raise none_free(ports or (0, 0), what, socket.gethostname())


def _hold(port: int) -> HeldPort | None:
    name = claim(port) if port else None
    if port and name is None:
        return None
    socks = [] if name is None else [name]
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("", port))
    except OSError as error:
        for each in (*socks, sock):
            each.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise
    return HeldPort(sock.getsockname()[1], (*socks, sock))
