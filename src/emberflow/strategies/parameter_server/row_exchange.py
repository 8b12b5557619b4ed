"""Batches of one node for another that has none left: tensors in TensorFlow's format, over authenticated sockets."""

import enum
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tensorflow as tf
from emberflow._protocol.sealed import TamperedError
from emberflow._protocol.sockets import dial, host_and_port
from emberflow.config import EXCHANGE_TIMEOUT, JOIN_TIMEOUT
from emberflow.errors import DataError, PeerError
from emberflow.strategies.transport.array_connection import ArrayConnection
from emberflow.strategies.transport.threaded_server import ThreadedServer

Leaves = list[Any]
Take = Callable[[int], tuple[int, Leaves] | None]

log = logging.getLogger("emberflow")


class RowFrame(enum.IntEnum):
    """The kind of a frame between two nodes. The numbers are not those of periodic averaging."""

    REQUEST = 32
    """To the node that has rows: the dataset and the epoch."""
    BATCH = 33
    """Back: the next batch."""
    EPOCH_ENDED = 34
    """Back: there are no more rows in this epoch."""
    FAILED = 35
    """Back: why the rows could not be read."""


class RowServer:
    """Sends this node's batches to the nodes that request them.

    Args:
        listener: The listening socket, whose address the others know.
        key: The run's secret.
        rank: This node's number.
        takes: By dataset name, what returns the next batch of an epoch.
        exchange_timeout: Seconds without a byte after which a node whose frame is incomplete is disconnected.
        encrypt: Whether rows are encrypted.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        key: bytes,
        rank: int,
        takes: Mapping[str, Take],
        exchange_timeout: float = EXCHANGE_TIMEOUT,
        encrypt: bool = False,
    ) -> None:
        self._takes = takes
        self._timeout = exchange_timeout
        self._server = ThreadedServer(
            listener, key=key, purpose=_purpose(rank), handle=self._handle, encrypt=encrypt
        )
        self._server.start()

    def close(self) -> None:
        """Close all connections."""
        self._server.close()

    def _handle(self, connection: ArrayConnection) -> None:
        connection.timeout = self._timeout
        while True:
            _, fields, _ = connection.receive()
            try:
                taken = self._takes[fields["name"]](int(fields["epoch"]))
            except Exception as error:
                connection.send(RowFrame.FAILED, {"problem": f"{type(error).__name__}: {error}"})
                raise
            if taken is None:
                connection.send(RowFrame.EPOCH_ENDED, {})
                continue
            rows, leaves = taken
            parts = [tf.io.serialize_tensor(leaf).numpy() for leaf in leaves]
            fields = {"rows": rows, "sizes": [len(part) for part in parts]}
            connection.send(RowFrame.BATCH, fields, np.frombuffer(b"".join(parts), np.uint8))


class PeerRows:
    """The rows of all other nodes.

    Args:
        addresses: Of all nodes that train, by rank.
        key: The run's secret.
        rank: This node's number.
        join_timeout: Seconds until a connection must be made.
        exchange_timeout: Seconds after which a node that does not answer is asked no more.
        encrypt: Whether rows are encrypted.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        key: bytes,
        rank: int,
        join_timeout: float = JOIN_TIMEOUT,
        exchange_timeout: float = EXCHANGE_TIMEOUT,
        encrypt: bool = False,
    ) -> None:
        self._key = key
        self._join_timeout = join_timeout
        self._timeout = exchange_timeout
        self._encrypts = encrypt
        self._connections: dict[int, ArrayConnection] = {}
        ranks = range(len(addresses))
        # Each node begins with its successor, so that they do not all ask the same node first.
        order = [(rank + step) % len(addresses) for step in ranks][1:]
        self._addresses = {other: addresses[other] for other in order}
        self._ended_epochs: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def take(self, name: str, epoch: int, dtypes: Sequence[Any]) -> tuple[int, int, Leaves] | None:
        """Return the owner's rank, the number of rows, and the tensors; None when no node has rows left."""
        with self._lock:
            for rank in list(self._addresses):
                if self._ended_epochs.get((name, rank), -1) >= epoch:
                    continue
                try:
                    taken = self._request(rank, name, epoch, dtypes)
                except TamperedError:
                    raise  # nobody would train on the batch that was altered
                except (OSError, PeerError) as error:
                    # A lost node, which the driver reports too. Its rows are not available any more.
                    self._drop(rank, error)
                    continue
                if taken is not None:
                    return rank, *taken
                self._ended_epochs[name, rank] = epoch
            return None

    def _request(self, rank: int, name: str, epoch: int, dtypes: Sequence[Any]) -> tuple[int, Leaves] | None:
        connection = self._connections.get(rank) or self._dial(rank)
        connection.send(RowFrame.REQUEST, {"name": name, "epoch": epoch})
        kind, fields, nbytes = connection.receive(self._timeout)
        if kind == RowFrame.FAILED:
            raise DataError(
                f"The rows of rank {rank} could not be read there: {fields['problem']}", fix="See its log."
            )
        if kind == RowFrame.EPOCH_ENDED:
            return None
        data = np.empty(nbytes, np.uint8)
        connection.receive_arrays(nbytes, data)
        leaves, start = [], 0
        for size, dtype in zip(fields["sizes"], dtypes, strict=True):
            leaves.append(tf.io.parse_tensor(data[start : start + size].tobytes(), dtype))
            start += size
        return int(fields["rows"]), leaves

    def _dial(self, rank: int) -> ArrayConnection:
        host, port = host_and_port(self._addresses[rank])
        sock = dial(host, port, self._key, _purpose(rank), self._join_timeout)
        self._connections[rank] = ArrayConnection(sock, self._timeout, encrypt=self._encrypts)
        return self._connections[rank]

    def _drop(self, rank: int, error: OSError | PeerError) -> None:
        """Ask this node no more and disconnect: nobody would train on what it sent from now on."""
        timeout = f"it did not answer for {self._timeout:g} s (exchange_timeout)"
        why = timeout if isinstance(error, TimeoutError) else str(error)
        log.warning("Rank %d at %s gives no more rows: %s", rank, self._addresses.pop(rank), why)
        if connection := self._connections.pop(rank, None):
            connection.close()


def _purpose(rank: int) -> str:
    return f"rows of rank {rank}"
