"""Ports of a range that several nodes of one host share.

A port that is held for TensorFlow is bound but not listened on, and the kernel would let others listen there. So
the process that holds one also binds its name among the abstract sockets of the host, which are in the same network
namespace as the ports and are freed by the kernel with the process.
"""

import secrets
import socket
import sys
from collections.abc import Iterator

from emberflow.config import PortRange
from emberflow.errors import ClusterError

_ROUNDS = 3  # two processes that try the same port at the same moment may both skip it


def ports_to_try(ports: PortRange | None) -> Iterator[int]:
    """Yield the ports to try: from a random place on, so that nodes that start together seldom collide."""
    if ports is None:
        yield 0  # the kernel picks a free one
        return
    first, last = ports
    count = last - first + 1
    start = secrets.randbelow(count)
    for step in range(_ROUNDS * count):
        yield first + (start + step) % count


def claim(port: int) -> socket.socket | None:
    """Return the name of a port of this host, to be kept for as long as the port is; None if it is taken."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        if sys.platform == "linux":  # others have no abstract sockets: there the port itself must do
            sock.bind(f"\0emberflow-port-{port}")
    except OSError:
        sock.close()
        return None
    return sock


def is_held(port: int) -> bool:
    """Tell whether some process holds this port for TensorFlow."""
    name = claim(port)
    if name is None:
        return True
    name.close()
    return False


def none_free(ports: PortRange, what: str, host: str) -> ClusterError:
    """Return the error for a range without a free port."""
    first, last = ports
    return ClusterError(
        f"A port between {first} and {last} must be free for {what}. "
        f"Received: port_range='{first}-{last}', and all {last - first + 1} are taken on {host}.",
        fix="Pass a wider port_range, or set spark.emberflow.portRange: two ports for each node of a host, one more "
        "for the driver and one for TensorBoard. ss -ltn shows who listens.",
    )
