"""The server of periodic averaging, on a node of role ps: one thread per worker.

A worker's bytes are received before anything is locked, so that a slow worker does not block the others.
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
from emberflow.strategies.periodic.frame_kinds import FrameKind, purpose_of
from emberflow.strategies.periodic.server_values import ServerValues
from emberflow.strategies.periodic.value_layout import Layout
from emberflow.strategies.transport.array_connection import ArrayConnection, Fields
from emberflow.strategies.transport.interface import Array
from emberflow.strategies.transport.threaded_server import ThreadedServer

log = logging.getLogger("emberflow")


class PeriodicServer:
    """Holds a part of the parameters, from `start` to `close`.

    Args:
        listener: The listening socket, whose address the workers know. The server closes it.
        index: Which of the servers this is.
        workers: How many nodes train.
        key: The run's secret.
        join_timeout: Seconds that workers wait for the chief's values, and the chief for workers to connect.
        exchange_timeout: Seconds without a byte after which a worker whose frame is incomplete is disconnected.
        on_failure: Called when the server cannot continue; `failure` is the reason.
        encrypt: Whether values are encrypted.
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
        encrypt: bool = False,
    ) -> None:
        self.values = ServerValues(workers)
        self.failure: BaseException | None = None
        self._join_timeout = join_timeout
        self._exchange_timeout = exchange_timeout
        self._on_failure = on_failure
        self._server = ThreadedServer(
            listener, key=key, purpose=purpose_of(index), handle=self._handle, encrypt=encrypt
        )

    def start(self) -> "PeriodicServer":
        """Begin to serve."""
        self._server.start()
        return self

    def report(self) -> dict[str, Any]:
        """Return statistics of the pushes so far."""
        return self.values.record.as_dict() | {"refused": self._server.refused}

    def close(self) -> None:
        """Close all connections. May be called twice."""
        self._server.close()

    def _handle(self, connection: ArrayConnection) -> None:
        connection.timeout = self._exchange_timeout
        session = _WorkerSession(self.values, connection, self._join_timeout)
        try:
            while session.answer_next():
                pass
        except CombinerError as error:
            self._fail(error.__cause__ or error, connection)
        except (OSError, ValueError, KeyError) as error:
            log.debug("worker %d of periodic averaging disconnected: %s", session.rank, error)
        except EmberflowError as error:
            connection.send(FrameKind.REFUSAL, {"problem": error.problem, "fix": error.fix})
        finally:
            session.end()

    def _fail(self, error: BaseException, connection: ArrayConnection) -> None:
        """Tell the worker that pushed, and end the node with what your combiner raised."""
        self.failure = self.failure or error
        try:
            trace = "".join(traceback.format_exception(error))
            problem = f"Your combiner raised {type(error).__name__} on the parameter server:\n{trace}"
            connection.send(FrameKind.REFUSAL, {"problem": problem, "fix": "Correct the function."})
        finally:
            self._on_failure()


class _WorkerSession:
    """One worker's connection, on the server."""

    def __init__(self, values: ServerValues, connection: ArrayConnection, join_timeout: float) -> None:
        self.rank = -1
        self._values = values
        self._connection = connection
        self._join_timeout = join_timeout
        self._connect_by = 0.0
        self._connection_number = 0
        self._push: Array = np.empty(0, np.uint8)
        self._copy: Array = np.empty(0, np.uint8)

    def answer_next(self) -> bool:
        """Answer one frame; False when it was the last."""
        kind, fields, nbytes = self._connection.receive()
        if kind == FrameKind.OPEN:
            self._open(fields, nbytes)
            return True
        if kind == FrameKind.LEAVE and self.rank < 0:
            self._values.mark_done(int(fields["rank"]))
            self._connection.send(FrameKind.ANSWER, {})
            return False
        if self.rank < 0:
            raise PeerError(
                f"A worker must open first. Received: frame kind {kind}.",
                fix="Check that all nodes run the same version of emberflow.",
            )
        if kind == FrameKind.PUSH:
            self._connection.receive_arrays(nbytes, self._push)
            stale, counted = self._values.push(self.rank, fields, self._push)
            self._answer({"stale": stale, "counted": counted})
        elif kind == FrameKind.PULL:
            self._answer({"places": self._values.places()})
        elif kind == FrameKind.FINISH:
            self._finish()
        elif kind == FrameKind.LEAVE:
            self._values.leave(self.rank, self._connection_number, is_done=True)
            self._connection.send(FrameKind.ANSWER, {})
            return False
        return True

    def end(self) -> None:
        """Note that this connection has ended."""
        if self.rank >= 0:
            self._values.leave(self.rank, self._connection_number, is_done=False)

    def _open(self, fields: Fields, nbytes: int) -> None:
        layout = Layout.from_json(fields["layout"])
        if fields["has_values"]:
            initial = np.empty(layout.nbytes, np.uint8)
            self._connection.receive_arrays(nbytes, initial)
            function = _function_of(fields["function"]) if fields.get("function") else None
            self._values.begin(layout, initial, function)
        self._connection_number = self._values.enter(
            int(fields["rank"]), int(fields["attempt"]), self._join_timeout
        )
        self.rank = int(fields["rank"])
        held = self._values.layout
        if held is None or held != layout:
            raise PeerError(
                "All workers must train the same model with the same combiner. Received: other variables than "
                "the chief's.",
                fix="Build the model by the same function on every node.",
            )
        self._push = np.empty(layout.push_nbytes, np.uint8)
        self._copy = np.empty(layout.nbytes, np.uint8)
        self._answer({})

    def _finish(self) -> None:
        """Answer which workers are still expected, before the worker that asks considers this server stopped."""
        self._connect_by = self._connect_by or time.monotonic() + self._join_timeout
        expected, missing = self._values.await_others(
            self.rank, self._connect_by, self._connection.timeout * deadlines.FINISH_ANSWER_SHARE
        )
        if expected:
            self._connection.send(FrameKind.ANSWER, {"expected": expected})
        else:
            self._answer({"missing": missing})

    def _answer(self, fields: Fields) -> None:
        version = self._values.pull(self._copy)
        self._connection.send(FrameKind.ANSWER, fields | {"version": version}, self._copy)


def _function_of(text: str) -> Any:
    """Return your combiner: code, like your function itself; the sender is authenticated."""
    try:
        return pickle.loads(bytes.fromhex(text))
    except Exception as error:
        raise CombinerError from error
