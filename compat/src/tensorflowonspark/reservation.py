"""Nodes that register with one server and wait for each other: for programs that use it themselves.

`TFCluster` has no need of it. Messages are JSON of a bounded length; the server listens on loopback unless
TFOS_SERVER_HOST names another address.
"""

import logging
import os
import socket
import struct
import threading
import time
from typing import Any

from emberflow_compat import deadlines
from tensorflowonspark import util
from tensorflowonspark.old_errors import ReservationError
from tensorflowonspark.plain_messages import decoded, encoded

logger = logging.getLogger(__name__)

TFOS_SERVER_HOST = "TFOS_SERVER_HOST"
TFOS_SERVER_PORT = "TFOS_SERVER_PORT"
LENGTH = struct.Struct(">I")
MOST_BYTES = 16 << 20


class Reservations:
    """What nodes have registered.

    Args:
        required: How many nodes there will be.
        primary_keys: The fields that name a node: `upsert` replaces the one with the same values.
    """

    def __init__(self, required: int, primary_keys: list[str] | None = None) -> None:
        self.required = required
        self.primary_keys = primary_keys or ["host", "executor_id"]
        self.reservations: list[dict[str, Any]] = []
        self.lock = threading.RLock()

    def add(self, meta: dict[str, Any]) -> None:
        """Add a node."""
        with self.lock:
            self.reservations.append(meta)

    def upsert(self, meta: dict[str, Any]) -> None:
        """Add a node, or replace the one with the same primary keys."""
        with self.lock:
            key = self._key(meta)
            self.reservations = [each for each in self.reservations if self._key(each) != key]
            self.reservations.append(meta)

    def done(self) -> bool:
        """Tell whether all have registered."""
        with self.lock:
            return len(self.reservations) >= self.required

    def get(self) -> list[dict[str, Any]]:
        """Return those that have registered."""
        with self.lock:
            return list(self.reservations)

    def remaining(self) -> int:
        """Return how many are missing."""
        with self.lock:
            return self.required - len(self.reservations)

    def _key(self, meta: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(meta.get(name, id(meta)) for name in self.primary_keys)


class MessageSocket:
    """Messages on a socket: four bytes of length, then JSON."""

    def receive(self, sock: socket.socket) -> Any:
        """Return the next message; None at the end of the connection."""
        head = self._exactly(sock, LENGTH.size)
        if head is None:
            return None
        (size,) = LENGTH.unpack(head)
        if size > MOST_BYTES:
            raise ReservationError(
                f"A message must have at most {MOST_BYTES} bytes. Received: {size}.",
                fix="Check that only TensorFlowOnSpark programs connect to this port.",
            )
        body = self._exactly(sock, size)
        return None if body is None else decoded(body)

    def send(self, sock: socket.socket, msg: Any) -> None:
        """Send a message."""
        body = encoded(msg)
        sock.sendall(LENGTH.pack(len(body)) + body)

    def _exactly(self, sock: socket.socket, size: int) -> bytes | None:
        parts: list[bytes] = []
        while size:
            part = sock.recv(min(size, 1 << 16))
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class Server(MessageSocket):
    """Takes the registrations of nodes.

    Args:
        count: How many nodes there will be.
        primary_keys: The fields that name a node.

    Attributes:
        done: Whether it was asked to stop.
    """

    def __init__(self, count: int, primary_keys: list[str] | None = None) -> None:
        self.reservations = Reservations(count, primary_keys)
        self.done = False
        self._listener: socket.socket | None = None

    def start(self) -> tuple[str, int]:
        """Listen, and return the address for clients."""
        listener = self.start_listening_socket()
        threading.Thread(target=self._accept, args=(listener,), name="reservations", daemon=True).start()
        host = os.environ.get(TFOS_SERVER_HOST) or "127.0.0.1"
        return host, listener.getsockname()[1]

    def await_reservations(
        self,
        sc: Any = None,
        status: dict[str, Any] | None = None,
        timeout: float = deadlines.RESERVATION_TIMEOUT,
    ) -> list[dict[str, Any]]:
        """Wait until all nodes have registered, and return them.

        Args:
            sc: Not used: the library stops no SparkContext.
            status: Is looked at for "error" while it waits.
            timeout: Seconds.
        """
        del sc
        until = time.monotonic() + timeout
        pause = threading.Event()
        while not self.reservations.done():
            if status and "error" in status:
                raise ReservationError(
                    f"All nodes must register. Received: {status['error']}.", fix="Correct that error first."
                )
            if time.monotonic() > until:
                raise ReservationError(
                    "Timed out waiting for reservations to complete: "
                    f"{self.reservations.remaining()} are missing after {timeout:g} s.",
                    fix="Check that Spark has as many executors as nodes, or pass a longer timeout.",
                )
            pause.wait(deadlines.RESERVATION_POLL)
        return self.reservations.get()

    def get_server_ip(self) -> str:
        """Return the address of TFOS_SERVER_HOST, else that of this machine."""
        return os.environ.get(TFOS_SERVER_HOST) or util.get_ip_address()

    def get_server_ports(self) -> list[int]:
        """Return the ports of TFOS_SERVER_PORT, "9997" or "9997-9999"; [0], any free one, if it is not set."""
        first, _, last = os.environ.get(TFOS_SERVER_PORT, "0").partition("-")
        return list(range(int(first), int(last or first) + 1))

    def start_listening_socket(self) -> socket.socket:
        """Listen on the first port that is free."""
        host = os.environ.get(TFOS_SERVER_HOST) or "127.0.0.1"
        ports = self.get_server_ports()
        for port in ports:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((host, port))
                sock.listen()
            except OSError:
                sock.close()
                continue
            self._listener = sock
            return sock
        raise ReservationError(
            f"A port must be free for the server. Received: none of {ports} is.",
            fix=f"Set {TFOS_SERVER_PORT} to another port or range, or unset it.",
        )

    def stop(self) -> None:
        """Take no more registrations."""
        self.done = True
        if self._listener is not None:
            self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self.done:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), name="reservation", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                while (msg := self.receive(sock)) is not None:
                    self.send(sock, self._answer(msg))
            except (OSError, ValueError, ReservationError) as error:
                logger.debug("A client is not answered: %s", error)

    def _answer(self, msg: Any) -> Any:
        match msg:
            case {"type": "REG", "data": dict() as node}:
                self.reservations.upsert(node)
                return "OK"
            case {"type": "QUERY"}:
                return self.reservations.done()
            case {"type": "QINFO"}:
                return self.reservations.get()
            case {"type": "STOP"}:
                self.stop()
                return "OK"
            case _:
                return "ERR"


class Client(MessageSocket):
    """A node's connection to the server.

    Args:
        server_addr: What `Server.start` returned.
    """

    def __init__(self, server_addr: tuple[str, int]) -> None:
        self.server_addr = (server_addr[0], int(server_addr[1]))
        self.sock = socket.create_connection(self.server_addr, timeout=deadlines.SOCKET_TIMEOUT)

    def register(self, reservation: dict[str, Any]) -> Any:
        """Register a node; return "OK"."""
        return self._request("REG", reservation)

    def get_reservations(self) -> list[dict[str, Any]]:
        """Return those that have registered."""
        found: list[dict[str, Any]] = self._request("QINFO")
        return found

    def await_reservations(self) -> list[dict[str, Any]]:
        """Wait until all have registered, and return them."""
        until = time.monotonic() + deadlines.RESERVATION_TIMEOUT
        pause = threading.Event()
        while not self._request("QUERY"):
            if time.monotonic() > until:
                raise ReservationError(
                    f"All nodes must register within {deadlines.RESERVATION_TIMEOUT} s. Received: some did not.",
                    fix="Check that Spark has as many executors as nodes.",
                )
            pause.wait(deadlines.RESERVATION_POLL)
        return self.get_reservations()

    def request_stop(self) -> Any:
        """Ask the server to stop."""
        return self._request("STOP")

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def _request(self, kind: str, data: Any = None) -> Any:
        self.send(self.sock, {"type": kind, "data": data})
        return self.receive(self.sock)
