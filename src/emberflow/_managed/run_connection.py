"""A task's connection to its run at the chief: it brings the order at first, and at the end the verdict."""

import io
import logging
import pickle
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from emberflow._managed.verdict import CLUSTER_FAILED, Verdict
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._protocol.file_transfer import receive_file, receive_size
from emberflow._protocol.handshake import HandshakeClosedError, HandshakeTimeoutError
from emberflow._protocol.sealed import TamperedError
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._protocol.sockets import address_of, unbracketed
from emberflow._task.driver_connection import dial_values
from emberflow._task.row_writer import DataSpec
from emberflow.errors import ClusterError, ConfigError, PeerError
from emberflow.storage import StorageSettings

log = logging.getLogger("emberflow")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the chief has decided for all tasks.

    Attributes:
        plan: The plan of the run.
        data: Its files, listed once.
        storage: The settings with which all open URLs.
        record: Folder for the record that the chief writes, if there is to be one.
        options: What was chosen, for that record.
    """

    plan: RunPlan
    data: DataSpec = field(default_factory=DataSpec)
    storage: StorageSettings = field(default_factory=StorageSettings)
    record: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


class RunConnection:
    """An authenticated connection to the chief.

    Attributes:
        order: Its first answer; None where there is only a verdict, since the run cannot begin.
    """

    def __init__(self, sock: SealedSocket, address: tuple[str, int]) -> None:
        self._sock = sock
        self._address = address_of(*address)
        sock.settimeout(deadlines.ORDER_TIMEOUT)
        data = self._receive()
        self.order: Order | None = pickle.loads(data) if data else None

    def await_verdict(self, timeout: float | None) -> Verdict:
        """Return how the run ended, or, if the chief has gone without a word, that it was lost."""
        self._sock.settimeout(timeout)
        try:
            return Verdict.from_bytes(self._receive())
        except (OSError, TamperedError) as error:
            text = (
                f"The chief at {self._address} is gone: {error}.\nFix: See what the cluster manager says of that "
                "task, and start all tasks again."
            )
            return Verdict(code=CLUSTER_FAILED, text=text)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def _receive(self) -> bytes:
        file = io.BytesIO()
        receive_file(self._sock, file, receive_size(self._sock))
        return file.getvalue()


class Retries:
    """Tries again until a deadline, and says once what it waits for.

    Args:
        timeout: Seconds from now on.
        what: What is waited for.
    """

    def __init__(self, timeout: float, what: str) -> None:
        self._timeout = timeout
        self._ends = time.monotonic() + timeout
        self._what = what
        self._is_said = False

    def pause(self, error: Exception) -> None:
        """Wait until the next try; raise a ClusterError when there is none."""
        if not self._is_said:
            self._is_said = True
            log.info("waiting for %s (%s)", self._what, error)
        if time.monotonic() + deadlines.MANAGED_DIAL_PAUSE >= self._ends:
            raise ClusterError(
                f"{self._what[0].upper()}{self._what[1:]} must answer within {self._timeout:g} s. Received: {error}.",
                fix="See whether the cluster manager has started that task, or raise --start-timeout.",
            ) from error
        time.sleep(deadlines.MANAGED_DIAL_PAUSE)  # neither DNS nor the other side says when it is ready


def await_name(host: str, retries: Retries) -> None:
    """Wait until DNS knows the name of this very task: it listens there."""
    while True:
        try:
            socket.getaddrinfo(unbracketed(host), 0)
        except OSError as error:
            retries.pause(error)
        else:
            return


def connect(address: tuple[str, int], key: bytes, retries: Retries) -> RunConnection:
    """Return a connection to the chief, as soon as it is up.

    Raises:
        ConfigError: The chief holds another key.
        ClusterError: It was not up in time.
    """
    while True:
        try:
            sock = dial_values(address, key, deadlines.DIAL_TIMEOUT)
            try:
                return RunConnection(sock, address)
            except BaseException:
                sock.close()
                raise
        except (HandshakeClosedError, HandshakeTimeoutError, OSError) as error:
            retries.pause(error)
        except PeerError as error:
            raise ConfigError(
                f"This task and the chief at {address_of(*address)} must hold the same key. Received: another key in "
                "EMBERFLOW_KEY_FILE, or another program listens there.",
                fix="Give the same `key_secret` to all tasks of a run, and start all of them again.",
            ) from error
