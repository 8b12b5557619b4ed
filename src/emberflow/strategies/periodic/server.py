"""The server of periodic averaging, on a node of role ps: one thread for each worker's connection.

A worker's bytes are received before anything is locked, so that a slow one holds nobody up.
"""

import logging
import pickle
import socket
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from emberflow._plan import deadlines
from emberflow.config import EXCHANGE_TIMEOUT, JOIN_TIMEOUT
from emberflow.errors import EmberflowError, PeerError
from emberflow.strategies.periodic.combiners import CombinerError
from emberflow.strategies.periodic.server_values import ServerValues
from emberflow.strategies.periodic.value_layout import Layout
from emberflow.strategies.transport.array_frames import (
    ANSWER,
    FINISH,
    LEAVE,
    OPEN,
    PULL,
    PUSH,
    REFUSAL,
    Facts,
    Wire,
    purpose_of,
)
from emberflow.strategies.transport.interface import Array
from emberflow.strategies.transport.threaded_server import ThreadedServer

log = logging.getLogger("emberflow")


class PeriodicServer:
    """Holds a part of the parameters, from `start` to `close`.

    Args:
        listener: The open door, whose address the workers know. The server closes it.
        index: Which of the servers this is.
        workers: How many nodes train.
        key: The run's secret.
        join_timeout: Seconds that workers wait for the chief's values, and the chief for workers that never came.
        exchange_timeout: Seconds without a byte after which a worker whose frame was cut is dropped.
        on_failure: Called when serving cannot go on; `failure` is why.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        index: int,
        workers: int,
        key: bytes,
        join_timeout: float = JOIN_TIMEOUT,
        exchange_timeout: float = EXCHANGE_TIMEOUT,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.centre = ServerValues(workers)
        self.failure: BaseException | None = None
        self._join_timeout = join_timeout
        self._exchange_timeout = exchange_timeout
        self._on_failure = on_failure
        self._reception = ThreadedServer(listener, key=key, purpose=purpose_of(index), talk=self._talk)

    def start(self) -> "PeriodicServer":
        """Begin to serve."""
        self._reception.start()
        return self

    def report(self) -> dict[str, Any]:
        """Return what came of the pushes so far."""
        return self.centre.record.as_dict() | {"refused": self._reception.refused}

    def close(self) -> None:
        """Hang up on everybody. May be called twice."""
        self._reception.close()

    def _talk(self, wire: Wire) -> None:
        wire.timeout = self._exchange_timeout
        peer = _Peer(self.centre, wire, self._join_timeout)
        try:
            while peer.hear():
                pass
        except CombinerError as error:
            self._fail(error.__cause__ or error, wire)
        except (OSError, ValueError, KeyError) as error:
            log.debug("worker %d of periodic averaging hung up: %s", peer.rank, error)
        except EmberflowError as error:
            wire.send(REFUSAL, {"problem": error.problem, "fix": error.fix})
        finally:
            peer.hang_up()

    def _fail(self, error: BaseException, wire: Wire) -> None:
        """Tell the worker that pushed, and have the node end with what your combiner raised."""
        self.failure = self.failure or error
        try:
            said = "".join(traceback.format_exception(error))
            problem = f"Your combiner raised {type(error).__name__} on the parameter server:\n{said}"
            wire.send(REFUSAL, {"problem": problem, "fix": "Correct the function."})
        finally:
            self._on_failure()


class _Peer:
    """One worker's connection, from its side of the server."""

    def __init__(self, centre: ServerValues, wire: Wire, join_timeout: float) -> None:
        self.rank = -1
        self._centre = centre
        self._wire = wire
        self._join_timeout = join_timeout
        self._come_by = 0.0
        self._connection = 0
        self._load: Array = np.empty(0, np.uint8)
        self._copy: Array = np.empty(0, np.uint8)

    def hear(self) -> bool:
        """Answer one frame; False when it was the last."""
        kind, facts, nbytes = self._wire.receive()
        if kind == OPEN:
            self._open(facts, nbytes)
            return True
        if kind == LEAVE and self.rank < 0:
            self._centre.excuse(int(facts["rank"]))
            self._wire.send(ANSWER, {})
            return False
        if self.rank < 0:
            raise PeerError("A worker must open first. Received: another frame.", fix="Update emberflow.")
        if kind == PUSH:
            self._wire.receive_arrays(nbytes, self._load)
            stale, counted = self._centre.push(self.rank, facts, self._load)
            self._answer({"stale": stale, "counted": counted})
        elif kind == PULL:
            self._answer({"places": self._centre.places()})
        elif kind == FINISH:
            self._finish()
        elif kind == LEAVE:
            self._centre.leave(self.rank, self._connection, is_done=True)
            self._wire.send(ANSWER, {})
            return False
        return True

    def hang_up(self) -> None:
        """Note that this connection is over."""
        if self.rank >= 0:
            self._centre.leave(self.rank, self._connection, is_done=False)

    def _open(self, facts: Facts, nbytes: int) -> None:
        layout = Layout.from_json(facts["layout"])
        if facts["brings_values"]:
            values = np.empty(layout.nbytes, np.uint8)
            self._wire.receive_arrays(nbytes, values)
            function = _function_of(facts["function"]) if facts.get("function") else None
            self._centre.begin(layout, values, function)
        self._connection = self._centre.enter(int(facts["rank"]), int(facts["attempt"]), self._join_timeout)
        self.rank = int(facts["rank"])
        held = self._centre.layout
        if held is None or held != layout:
            raise PeerError(
                "All workers must train the same model with the same combiner. Received: other variables than "
                "the chief's.",
                fix="Build the model by the same function on every node.",
            )
        self._load = np.empty(layout.load_nbytes, np.uint8)
        self._copy = np.empty(layout.nbytes, np.uint8)
        self._answer({})

    def _finish(self) -> None:
        """Answer who is still waited for before the worker that asks takes this server for stopped."""
        self._come_by = self._come_by or time.monotonic() + self._join_timeout
        awaited, missing = self._centre.await_others(
            self.rank, self._come_by, self._wire.timeout * deadlines.FINISH_ANSWER_SHARE
        )
        if awaited:
            self._wire.send(ANSWER, {"awaited": awaited})
        else:
            self._answer({"missing": missing})

    def _answer(self, facts: Facts) -> None:
        version = self._centre.pull(self._copy)
        self._wire.send(ANSWER, facts | {"version": version}, self._copy)


def _function_of(text: str) -> Any:
    """Return your combiner: code, like your function itself; whoever speaks here has proven the run's key."""
    try:
        return pickle.loads(bytes.fromhex(text))
    except Exception as error:
        raise CombinerError from error
