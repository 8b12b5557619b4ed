"""Batches of one node for another that has none left: a keyed connection, tensors in TensorFlow's own bytes."""

import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tensorflow as tf
from emberflow._protocol.sockets import dial, host_and_port
from emberflow.config import EXCHANGE_TIMEOUT, JOIN_TIMEOUT
from emberflow.errors import DataError, PeerError
from emberflow.strategies.transport.array_frames import Wire
from emberflow.strategies.transport.threaded_server import ThreadedServer

ASK, BATCH, OVER, FAILED = range(32, 36)

Leaves = list[Any]
Take = Callable[[int], tuple[int, Leaves] | None]

log = logging.getLogger("emberflow")


class RowServer:
    """Gives this node's batches to whoever asks first.

    Args:
        listener: The open door, whose address the others know.
        key: The run's secret.
        rank: This node's number.
        takes: By name, what gives the next batch of an epoch.
        exchange_timeout: Seconds without a byte after which a node whose frame was cut is dropped.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        key: bytes,
        rank: int,
        takes: Mapping[str, Take],
        exchange_timeout: float = EXCHANGE_TIMEOUT,
    ) -> None:
        self._takes = takes
        self._timeout = exchange_timeout
        self._reception = ThreadedServer(listener, key=key, purpose=_purpose(rank), talk=self._talk)
        self._reception.start()

    def close(self) -> None:
        """Hang up on everybody."""
        self._reception.close()

    def _talk(self, wire: Wire) -> None:
        wire.timeout = self._timeout
        while True:
            _, facts, _ = wire.receive()
            try:
                taken = self._takes[facts["name"]](int(facts["epoch"]))
            except Exception as error:
                wire.send(FAILED, {"problem": f"{type(error).__name__}: {error}"})
                raise
            if taken is None:
                wire.send(OVER, {})
                continue
            rows, leaves = taken
            parts = [tf.io.serialize_tensor(leaf).numpy() for leaf in leaves]
            facts = {"rows": rows, "sizes": [len(part) for part in parts]}
            wire.send(BATCH, facts, np.frombuffer(b"".join(parts), np.uint8))


class Others:
    """The row servers of all other nodes.

    Args:
        addresses: Of all nodes that train, by rank.
        key: The run's secret.
        rank: This node's number.
        join_timeout: Seconds to connect in.
        exchange_timeout: Seconds after which a node that does not answer gives no more rows.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        key: bytes,
        rank: int,
        join_timeout: float = JOIN_TIMEOUT,
        exchange_timeout: float = EXCHANGE_TIMEOUT,
    ) -> None:
        self._key = key
        self._join_timeout = join_timeout
        self._timeout = exchange_timeout
        self._wires: dict[int, Wire] = {}
        ranks = range(len(addresses))
        # Beginning after ourselves, so that not all go to the same one first.
        order = [(rank + step) % len(addresses) for step in ranks][1:]
        self._addresses = {other: addresses[other] for other in order}
        self._over: dict[tuple[str, int], int] = {}
        self._asking = threading.Lock()

    def take(self, name: str, epoch: int, dtypes: Sequence[Any]) -> tuple[int, int, Leaves] | None:
        """Return whose rows, how many, and the tensors; None when nobody has rows left in this epoch."""
        with self._asking:
            for rank in list(self._addresses):
                if self._over.get((name, rank), -1) >= epoch:
                    continue
                try:
                    taken = self._ask(rank, name, epoch, dtypes)
                except (OSError, PeerError) as error:
                    # A node that is lost; the driver says so too. Its rows are not to be had any more.
                    self._drop(rank, error)
                    continue
                if taken is not None:
                    return rank, *taken
                self._over[name, rank] = epoch
            return None

    def _ask(self, rank: int, name: str, epoch: int, dtypes: Sequence[Any]) -> tuple[int, Leaves] | None:
        wire = self._wires.get(rank) or self._dial(rank)
        wire.send(ASK, {"name": name, "epoch": epoch})
        kind, facts, nbytes = wire.receive(self._timeout)
        if kind == FAILED:
            raise DataError(
                f"The rows of rank {rank} could not be read there: {facts['problem']}", fix="See its log."
            )
        if kind == OVER:
            return None
        data = np.empty(nbytes, np.uint8)
        wire.receive_arrays(nbytes, data)
        leaves, start = [], 0
        for size, dtype in zip(facts["sizes"], dtypes, strict=True):
            leaves.append(tf.io.parse_tensor(data[start : start + size].tobytes(), dtype))
            start += size
        return int(facts["rows"]), leaves

    def _dial(self, rank: int) -> Wire:
        host, port = host_and_port(self._addresses[rank])
        sock = dial(host, port, self._key, _purpose(rank), self._join_timeout)
        self._wires[rank] = Wire(sock, self._timeout)
        return self._wires[rank]

    def _drop(self, rank: int, error: OSError | PeerError) -> None:
        """Ask this node no more, and let it know: what it sent from now on nobody would train on."""
        silent = f"it did not answer for {self._timeout:g} s (exchange_timeout)"
        why = silent if isinstance(error, TimeoutError) else str(error)
        log.warning("Rank %d at %s gives no more rows: %s", rank, self._addresses.pop(rank), why)
        if wire := self._wires.pop(rank, None):
            wire.close()


def _purpose(rank: int) -> str:
    return f"rows of rank {rank}"
