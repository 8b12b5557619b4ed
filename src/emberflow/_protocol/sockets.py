"""Sockets between nodes and driver: listening, dialling with proof of the key, noticing a host that is gone."""

import errno
import logging
import math
import random
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any

from emberflow._plan import deadlines
from emberflow._protocol.handshake import HandshakeClosedError, prove_as_client
from emberflow._protocol.port_claims import is_held, none_free, ports_to_try
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow.config import PortRange
from emberflow.errors import ClusterError

log = logging.getLogger("emberflow")

BACKLOG = 4096  # the kernel lowers it where it must; thousands of nodes connect at the same time
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_PASSING = (errno.ECONNRESET, errno.ECONNABORTED, errno.EADDRNOTAVAIL, errno.ETIMEDOUT)


def listen(
    host: str, *, ports: PortRange | None = None, what: str = "a socket", backlog: int = BACKLOG
) -> socket.socket:
    """Listen on the host's own interface, at a free port.

    Where the host's address is not one of this machine's (behind address translation), on all interfaces of the
    same family.

    Args:
        host: Name or address; an IPv6 address with or without brackets.
        ports: First and last port that it may be; None for any.
        what: What the socket is for, for errors.
        backlog: Connections that the kernel keeps until they are accepted.

    Raises:
        ClusterError: The host is unknown, or no port is free.
    """
    addresses = _resolve(host)
    for family, address in addresses:
        try:
            return _listen_at(family, address, ports, what, backlog)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise ClusterError(
                    f"{host} must have a free port for {what}. Received: host={host!r}, {error}",
                    fix="Look at what listens on this host: ss -ltn.",
                ) from error
    family, _ = addresses[0]
    log.warning("%s is not an address of this machine: listening on all its interfaces instead.", host)
    everywhere = ("::" if family == socket.AF_INET6 else "", 0)
    return _listen_at(family, everywhere, ports, what, backlog)


def _listen_at(
    family: int, address: tuple[Any, ...], ports: PortRange | None, what: str, backlog: int
) -> socket.socket:
    host, _, *rest = address
    for port in ports_to_try(ports):
        try:
            sock = socket.create_server((host, port, *rest), family=family, backlog=backlog)
        except OSError as error:
            if ports is None or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            continue
        if ports is None or not is_held(port):
            return sock
        sock.close()
    raise none_free(ports or (0, 0), what, host or "this host")


def dial(
    host: str, port: int, key: bytes, purpose: str, timeout: float, *, busy_timeout: float = 0.0
) -> SealedSocket:
    """Return a blocking connection on which both sides are authenticated.

    Args:
        host: Name or address; an IPv6 address with or without brackets.
        port: Where it listens.
        key: The shared secret.
        purpose: What the connection is for; both sides must say the same.
        timeout: Seconds until a server must have answered in our protocol.
        busy_timeout: Seconds for everything, if that is more: a server with too many connections refuses this one
            several times.

    Raises:
        OSError: No server listens there.
        PeerError: The server does not hold the key, or has refused this connection until the end.
    """
    started = time.monotonic()
    deadline = started + timeout
    pauses = _pauses()
    while True:
        pause = next(pauses)
        try:
            return _dial_once(unbracketed(host), port, key, purpose, deadline, may_be_busy=busy_timeout > 0)
        except HandshakeClosedError as error:
            if error.is_ours:
                deadline = max(deadline, started + busy_timeout)
            if time.monotonic() + pause >= deadline:
                raise
        except OSError as error:
            if not _is_passing(error) or time.monotonic() + pause >= deadline:
                raise
        time.sleep(pause)  # the server does not say when it has room again


def _dial_once(
    host: str, port: int, key: bytes, purpose: str, deadline: float, *, may_be_busy: bool
) -> SealedSocket:
    left = max(deadline - time.monotonic(), deadlines.SHORTEST_WAIT)
    sock = socket.create_connection((host, port), timeout=min(left, deadlines.CONNECT_ONCE_TIMEOUT))
    try:
        least = deadlines.HANDSHAKE_TIMEOUT if may_be_busy else deadlines.SHORTEST_WAIT
        left = max(deadline - time.monotonic(), least)
        peer = f"the server at {address_of(host, port)} ({purpose})"
        seals = prove_as_client(sock, key, purpose, limit=left, peer=peer)
        sock.settimeout(None)
        keep_alive(sock)
    except BaseException:
        sock.close()
        raise
    return SealedSocket(sock, seals)


def listen_abstract(name: str) -> socket.socket:
    """Listen on an abstract Unix name of this host: it needs no folder, and is gone with this process."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(f"\0{name}")
        sock.listen()
    except BaseException:
        sock.close()
        raise
    return sock


def peer_process(sock: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end of a Unix socket, as the kernel knows them."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(raw)
    return process, user


def dial_abstract(name: str, key: bytes, purpose: str, timeout: float) -> SealedSocket:
    """Return a blocking connection to an abstract Unix name of this host, on which both sides are authenticated.

    Raises:
        OSError: No process of this host listens there; this is known at once.
        PeerError: The server does not hold the key.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(f"\0{name}")
        seals = prove_as_client(sock, key, purpose, limit=timeout, peer=f"the server {name} ({purpose})")
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return SealedSocket(sock, seals)


def _is_passing(error: OSError) -> bool:
    return isinstance(error, TimeoutError) or error.errno in _PASSING


def _pauses() -> Iterator[float]:
    """Yield growing pauses, random so that clients that were refused together do not return together."""
    pause = deadlines.FIRST_DIAL_PAUSE
    while True:
        yield random.uniform(pause / 2, pause)
        pause = min(2 * pause, deadlines.LONGEST_DIAL_PAUSE)


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel notice a host that vanished, in about 15 s; a stopped process still answers."""
    if sock.family == socket.AF_UNIX:
        return  # both ends are on this host
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    settings = {
        "TCP_KEEPIDLE": deadlines.KEEPALIVE_IDLE,
        "TCP_KEEPINTVL": deadlines.KEEPALIVE_INTERVAL,
        "TCP_KEEPCNT": deadlines.KEEPALIVE_PROBES,
    }
    for name, value in settings.items():
        if option := getattr(socket, name, None):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def readable(files: Iterable[Any], timeout: float | None) -> list[Any]:
    """Return those of some sockets or files that can be read from, as soon as one can, or none at the timeout.

    What ``select.select`` does, which fails for descriptors above 1,023.
    """
    poll = select.poll()
    by_number = {file.fileno(): file for file in files}
    for number in by_number:
        poll.register(number, select.POLLIN)
    ready = poll.poll(None if timeout is None else math.ceil(timeout * 1000))
    return [by_number[number] for number, _ in ready]


def unbracketed(host: str) -> str:
    """Return a host as the socket functions want it.

    >>> unbracketed("[::1]"), unbracketed("node-1")
    ('::1', 'node-1')
    """
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def own_address_towards(host: str) -> str:
    """Return the address of the interface from which this machine reaches a host."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(unbracketed(host), 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # a UDP connect sends nothing; it only picks the route
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def address_of(host: str, port: int) -> str:
    """Return host and port as one text.

    >>> address_of("::1", 80), address_of("[::1]", 80), address_of("node-1", 80)
    ('[::1]:80', '[::1]:80', 'node-1:80')
    """
    bare = unbracketed(host)
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """Return what `address_of` put together.

    >>> host_and_port("[::1]:80"), host_and_port("node-1:80")
    (('::1', 80), ('node-1', 80))
    """
    host, _, port = address.rpartition(":")
    return unbracketed(host), int(port)


def _resolve(host: str) -> list[tuple[int, tuple[Any, ...]]]:
    """Return the host's addresses, IPv4 first, each with port 0."""
    try:
        found = socket.getaddrinfo(unbracketed(host), 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ClusterError(
            f"The host to listen on must be known on this machine. Received: host={host!r}, {error}",
            fix="Correct the name, add it to /etc/hosts or DNS, or set SPARK_LOCAL_IP to an address of this host.",
        ) from error
    pairs = [(int(family), address) for family, _, _, _, address in found]
    return sorted(pairs, key=lambda pair: pair[0] != socket.AF_INET)
