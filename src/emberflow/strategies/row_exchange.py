"""Batches of one node for another that has none left: a keyed connection, tensors in TensorFlow's own bytes."""

import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tensorflow as tf
from emberflow._wire.sockets import dial, host_and_port
from emberflow.errors import DataError, PeerError
from emberflow.strategies.array_wire import Wire
from emberflow.strategies.reception import Reception

ASK, BATCH, OVER, FAILED = range(32, 36)
CONNECT_TIMEOUT = 10.0

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
    """

    def __init__(self, listener: socket.socket, *, key: bytes, rank: int, takes: Mapping[str, Take]) -> None:
        self._takes = takes
        self._reception = Reception(listener, key=key, purpose=_purpose(rank), talk=self._talk)
        self._reception.start()

    def close(self) -> None:
        """Hang up on everybody."""
        self._reception.close()

    def _talk(self, wire: Wire) -> None:
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
    """

    def __init__(self, addresses: Sequence[str], *, key: bytes, rank: int) -> None:
        self._key = key
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
                    log.warning("rank %d gives no more rows: %s", rank, error)
                    del self._addresses[rank]
                    continue
                if taken is not None:
                    return rank, *taken
                self._over[name, rank] = epoch
            return None

    def _ask(self, rank: int, name: str, epoch: int, dtypes: Sequence[Any]) -> tuple[int, Leaves] | None:
        wire = self._wires.get(rank) or self._dial(rank)
        wire.send(ASK, {"name": name, "epoch": epoch})
        kind, facts, nbytes = wire.receive()
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
        self._wires[rank] = Wire(dial(host, port, self._key, _purpose(rank), CONNECT_TIMEOUT))
        return self._wires[rank]


def _purpose(rank: int) -> str:
    return f"rows of rank {rank}"
