"""The task's side of large values: fetches your function, and sends what the chief returned to the driver.

How a value gets to the driver, by the first that is possible: as rows of the stage if it is small; over a connection
to the driver; by the checkpoint folder, if the driver cannot be reached; as rows, up to the limit that Spark has.
"""

import functools
import hmac
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from emberflow import storage
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._protocol.file_transfer import (
    CHUNK,
    FETCH,
    VALUE,
    KeepError,
    receive_file,
    receive_size,
    send_file,
    send_request,
)
from emberflow._protocol.outcome import Ending, ValueRoute
from emberflow._protocol.sealed_file import LocalFile, SealedWriter
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._protocol.sockets import address_of
from emberflow._task.driver_connection import dial_values
from emberflow.errors import ClusterError, EmberflowError, FailureCause, NodeLostError, StorageError

SMALL = 1 << 20  # of the chief: as rows, which costs nothing then
OTHERS_SMALL = 64 * 1024  # of other nodes; the driver gets no larger value of theirs
FUNCTION_FILE = "function.pickle"


@dataclass(frozen=True, kw_only=True)
class ValuePlan:
    """What tasks know of large values.

    Attributes:
        function_bytes: Size of your function where it is not part of the `TaskSpec`, else 0.
        artifact: The name under which Spark brings it, where the driver cannot be dialled.
        least_bytes: What the chief's value has at least, as far as that is known beforehand.
        row_limit: Most bytes that Spark brings back as rows; 0 where it has no limit.
    """

    function_bytes: int = 0
    artifact: str = ""
    least_bytes: int = 0
    row_limit: int = 0


class ValueClient:
    """One task's connection for large values, if it has one and needs it.

    Args:
        values: What is known of large values.
        plan: The attempt's plan.
        key: The attempt's secret.
        rank: This task's node.
        has_driver: Whether this task has reached the driver's hub.
        is_late: Whether to dial only when there is a large value: for tasks that need the driver for nothing else.
    """

    def __init__(
        self,
        values: ValuePlan,
        plan: RunPlan,
        key: bytes,
        rank: int,
        *,
        has_driver: bool = False,
        is_late: bool = False,
    ) -> None:
        self._values = values
        self._plan = plan
        self._key = key
        self._rank = rank
        self._is_late = is_late
        self._no_driver = "it cannot reach the driver"
        is_needed = rank == 0 or (values.function_bytes and not values.artifact)
        self._sock = self._dial() if has_driver and is_needed else None

    def close(self) -> None:
        """Close the connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def check(self) -> None:
        """Refuse, before anything starts, a value that could not be returned afterwards."""
        least, limit = self._values.least_bytes, self._values.row_limit
        if self._rank or self._sock is not None or self._plan.checkpoints or not 0 < limit < least:
            return
        raise ClusterError(
            f"the model that it returns will have {megabytes(least)} or more, {self._no_driver}, and Spark "
            f"brings back at most {megabytes(limit)} (spark.driver.maxResultSize)",
            fix="Pass driver_host=... with an address that executors can reach, or checkpoint_dir=... on storage "
            "that they share with the driver, or raise spark.driver.maxResultSize.",
        )

    def fetch_function(self, folder: Path) -> LocalFile | None:
        """Return your function's file; None where it is part of the `TaskSpec`."""
        size = self._values.function_bytes
        if not size:
            return None
        if self._values.artifact:
            from pyspark import SparkFiles

            return LocalFile(path=str(SparkFiles.get(self._values.artifact)), size=size)
        if self._sock is None:
            raise self._no_function(self._no_driver)
        path = folder / FUNCTION_FILE
        try:
            with path.open("xb") as file:
                path.chmod(0o600)
                sealed = SealedWriter(file.fileno()) if self._plan.encrypts_files else None
                send_request(self._sock, FETCH, self._rank)
                receive_file(self._sock, sealed or file, receive_size(self._sock))
                if sealed is not None:
                    sealed.finish()
        except KeepError as error:
            raise ClusterError(
                f"it has no room for your function of {megabytes(size)} in {folder}: {error.strerror}",
                fix="Free space in spark.local.dir on the executors.",
            ) from error
        except OSError as error:
            raise self._no_function(str(error)) from error
        if self._rank:
            self.close()  # only the chief brings a large value back
        return LocalFile(path=str(path), size=size, key=sealed.key if sealed else None)

    def deliver(self, value: IO[bytes], size: int) -> tuple[Ending, dict[str, str]]:
        """Send the value, or leave it to the rows; return the node's ending, and further fields of its outcome."""
        try:
            return Ending.RETURNED, self._deliver(value, size)
        except EmberflowError as error:
            known = {"problem": error.problem, "fix": error.fix, "exception_type": type(error).__name__}
            return Ending.UNDELIVERED, known

    def _deliver(self, value: IO[bytes], size: int) -> dict[str, str]:
        if size <= SMALL and not self._plan.is_live:
            return {}
        if self._is_late and self._sock is None:
            self._sock = self._dial()
        if self._sock is not None:
            self._send(self._sock, value, size)
            return {"value_route": ValueRoute.DRIVER}
        if self._plan.is_live:
            raise _lost(self._no_driver)
        if self._plan.checkpoints:
            return {"value_route": ValueRoute.STORAGE, "value_mac": self._store(value)}
        if 0 < self._values.row_limit < size:
            raise ClusterError(
                f"{megabytes(size)} are too large: {self._no_driver}, and Spark brings back at most "
                f"{megabytes(self._values.row_limit)} (spark.driver.maxResultSize)",
                fix="Pass driver_host=... with an address that executors can reach, or checkpoint_dir=... on "
                "storage that they share with the driver, or raise spark.driver.maxResultSize.",
            )
        return {}

    def _dial(self) -> SealedSocket | None:
        address = self._plan.driver_address
        if address is None:
            return None
        try:
            with ExitStack() as held:
                sock = dial_values(
                    address, self._key, deadlines.DIAL_TIMEOUT, busy_timeout=self._plan.start_timeout
                )
                held.callback(sock.close)
                sock.settimeout(self._plan.start_timeout)
                receive_size(sock)  # the driver's greeting
                sock.settimeout(self._plan.exchange_timeout)
                held.pop_all()
        except (OSError, EmberflowError) as error:
            self._no_driver = f"it cannot reach the driver at {address_of(*address)} ({error})"
            return None
        return sock

    def _no_function(self, why: str) -> ClusterError:
        error = ClusterError(
            f"it could not fetch your function of {megabytes(self._values.function_bytes)}: {why}",
            fix="Let executors reach the driver's host on any port, pass driver_host=... with an address that they "
            "can reach, or let the function read its data from storage.",
        )
        error.cause = FailureCause.FUNCTION_NOT_FETCHED
        return error

    def _send(self, sock: SealedSocket, value: IO[bytes], size: int) -> None:
        try:
            send_request(sock, VALUE, self._rank, size)
            send_file(sock, functools.partial(_read_at, value), size)
            is_there = receive_size(sock) == size
        except OSError as error:
            late = f", silent for {sock.gettimeout():g} s (exchange_timeout)"
            why = f"the driver does not take it{late}" if isinstance(error, TimeoutError) else str(error)
            raise _lost(why) from error
        if not is_there:
            raise _lost("the driver got another number of bytes")

    def _store(self, value: IO[bytes]) -> str:
        """Write the value into the shared folder; return what proves to the driver that it is this one."""
        path, mac = value_path(self._plan), hmac.new(self._key, digestmod="sha256")
        value.seek(0)
        try:
            with storage.open_file(path, "wb") as target:
                while chunk := value.read(CHUNK):
                    mac.update(chunk)
                    target.write(chunk)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error}", fix="Free space there.") from error
        return mac.hexdigest()


def _read_at(file: IO[bytes], size: int, position: int) -> bytes:
    file.seek(position)
    return file.read(size)


def _lost(why: str) -> NodeLostError:
    return NodeLostError(
        why, fix="Look at the driver's log, and at the network between driver and executors."
    )


def megabytes(size: int) -> str:
    """Return a size as people read it.

    >>> megabytes(943_718), megabytes(1_610_612_736)
    ('0.9 MB', '1,536.0 MB')
    """
    return f"{size / (1 << 20):,.1f} MB"


def value_path(plan: RunPlan) -> str:
    """Return the path of the chief's value in the shared folder, until the driver has it."""
    assert plan.checkpoints is not None  # noqa: S101 - asked before, for the type checker
    return storage.join(plan.checkpoints.folder, f".value-{plan.run_id}-{plan.attempt}.pickle")
