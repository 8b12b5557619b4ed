"""The driver's side of large values: sends your function to the tasks, and receives what the chief returns."""

import hmac
import socket
import tempfile
import threading
from contextlib import suppress
from typing import IO, Any

from emberflow import storage
from emberflow._driver.events import Events, Undelivered
from emberflow._driver.shipping import Shipment
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._protocol.file_transfer import (
    CHUNK,
    FETCH,
    KeepError,
    receive_file,
    receive_request,
    send_file,
    send_size,
)
from emberflow._protocol.outcome import Outcome, ValueRoute
from emberflow._protocol.sealed import TamperedError
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._task.value_client import value_path
from emberflow.errors import EmberflowError, StorageError


class ValueServer:
    """Serves the tasks of one attempt, one thread per connection.

    A value that cannot be stored becomes an event `Undelivered`. A connection that breaks does not: its task reports
    that, or the hub notices that the task is gone.

    Args:
        timeout: Seconds in which a peer must send or take some of what it is about to.
        shipment: Your function; tasks ask for it where it is large.
        events: Where failures go.

    Attributes:
        failures: The same failures by rank.
    """

    def __init__(self, *, timeout: float, shipment: Shipment, events: Events) -> None:
        self.failures: dict[int, Undelivered] = {}
        self._timeout = timeout
        self._shipment = shipment
        self._events = events
        self._received: dict[int, IO[bytes]] = {}
        self._lock = threading.Lock()
        self._serving: set[SealedSocket] = set()
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def admit(self, sock: SealedSocket) -> None:
        """Serve an authenticated connection, which belongs to the server from now on."""
        thread = threading.Thread(target=self._serve, args=(sock,), name="emberflow-values", daemon=True)
        with self._lock:
            if self._is_closed:
                sock.close()
                return
            self._serving.add(sock)
            self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
            thread.start()

    def take(self, rank: int) -> IO[bytes]:
        """Return the file with a node's pickled value, which then belongs to the caller."""
        with self._lock:
            file = self._received.pop(rank)
        file.seek(0)
        return file

    def close(self) -> None:
        """Stop serving, and delete the values that were not taken. May be called twice."""
        with self._lock:
            self._is_closed = True
            for sock in self._serving:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # its thread closes it
        for thread in self._threads:  # also those that have just closed their connection
            thread.join(deadlines.VALUES_END_TIMEOUT)
        with self._lock:
            files = list(self._received.values())
            self._received.clear()
        for file in files:
            file.close()

    def _serve(self, sock: SealedSocket) -> None:
        try:
            with suppress(
                OSError, TamperedError
            ):  # the task reports it, or the hub notices that the task is gone
                send_size(sock, self._shipment.size)  # the hub has read all that was sent before
                while request := receive_request(sock):  # the chief may train for days before the next one
                    kind, rank, size = request
                    sock.settimeout(self._timeout)
                    if kind == FETCH:
                        send_size(sock, self._shipment.size)
                        send_file(sock, self._shipment.read_at, self._shipment.size)
                    else:
                        self._receive(sock, rank, size)
                    sock.settimeout(None)
        finally:
            with self._lock:
                self._serving.remove(sock)
            sock.close()

    def _receive(self, sock: SealedSocket, rank: int, size: int) -> None:
        """Spool a value and confirm it, or report why that is not possible."""
        try:
            file = receive_to_file(sock, size)
        except (OSError, TamperedError) as error:
            if failure := self._explain(rank, error, size):
                self.failures[rank] = failure
                self._events.put(failure)
            raise
        with self._lock:
            before = self._received.pop(rank, None)  # of a second copy of the task
            self._received[rank] = file
        if before is not None:
            before.close()
        send_size(sock, size)

    def _explain(self, rank: int, error: OSError | TamperedError, size: int) -> Undelivered | None:
        """Return what the driver alone knows of a failure; of a broken connection, nothing."""
        if isinstance(error, TamperedError):
            return Undelivered(rank, error.problem, error.fix, "NodeLostError")
        if isinstance(error, KeepError):
            folder, room = tempfile.gettempdir(), f"{(size >> 20) + 1} MB"
            return Undelivered(
                rank,
                f"the driver cannot write the {room} to {folder}: {error.strerror}",
                f"Free {room} there, or set TMPDIR to a folder with more room before the driver starts.",
                "StorageError",
            )
        if isinstance(error, TimeoutError):
            return Undelivered(
                rank,
                f"{error}, and nothing for {self._timeout:g} s (exchange_timeout)",
                "See who stopped its Spark task (SIGSTOP, a debugger) and whether its host swaps, or raise "
                "exchange_timeout.",
                "NodeLostError",
            )
        return None


def receive_to_file(sock: SealedSocket, size: int) -> IO[bytes]:
    """Return a file with the next `size` bytes of a connection."""
    file = spool()
    try:
        receive_file(sock, file, size)
    except BaseException:
        with suppress(OSError):  # a full disk cannot take what is still in the buffer either
            file.close()
        raise
    return file


def spool() -> IO[bytes]:
    """Return a new file for a value. It has no name from its first byte, so that nothing can be left behind."""
    try:
        return tempfile.TemporaryFile(prefix="emberflow-")
    except OSError as error:
        raise KeepError(*error.args) from error


def collect_values(rows: list[Any], server: ValueServer, plan: RunPlan, key: bytes) -> dict[int, IO[bytes]]:
    """Return the files with the values that are not in the rows, by rank."""
    taken: dict[int, IO[bytes]] = {}
    for outcome in (Outcome.from_json(row["outcome"]) for row in rows if row["part"] == 0):
        if outcome.value_route is ValueRoute.DRIVER:
            taken[outcome.rank] = server.take(outcome.rank)
        elif outcome.value_route is ValueRoute.STORAGE:
            taken[outcome.rank] = fetch_stored(plan, key, outcome.value_mac)
    return taken


def fetch_stored(plan: RunPlan, key: bytes, mac: str) -> IO[bytes]:
    """Return the value that the chief left in the shared folder; there it is deleted.

    Others may write to that folder: what is not the very bytes that the task wrote is not unpickled.
    """
    path, seen = value_path(plan), hmac.new(key, digestmod="sha256")
    try:
        file = spool()
        with storage.open_file(path) as source:
            while chunk := source.read(CHUNK):
                seen.update(chunk)
                file.write(chunk)
        file.seek(0)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"The value in {path} must fit into {tempfile.gettempdir()}. Received: {error}.",
            fix="Free space there, or set TMPDIR to a folder with more room before the driver starts.",
        ) from error
    if not hmac.compare_digest(seen.hexdigest(), mac):
        file.close()
        raise StorageError(
            f"{path} must be the value that the chief wrote there. Received: other bytes.",
            fix="Find out what else writes to checkpoint_dir, and run again.",
        )
    storage.delete(path)
    return file


def drop_stored(plan: RunPlan) -> None:
    """Delete what a chief may have left in the shared folder when its attempt failed."""
    with suppress(EmberflowError):
        if plan.checkpoints and storage.exists(value_path(plan)):
            storage.delete(value_path(plan))
