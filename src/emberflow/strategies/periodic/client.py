"""A worker's side of periodic averaging: numpy arrays to the servers and back."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from emberflow._protocol.sockets import dial, host_and_port
from emberflow.config import EXCHANGE_TIMEOUT, JOIN_TIMEOUT
from emberflow.errors import PeerError
from emberflow.strategies.periodic.combiners import Combiner, write_push
from emberflow.strategies.periodic.frame_kinds import FrameKind, purpose_of
from emberflow.strategies.periodic.value_layout import Layout, VariableSpec, layouts_of
from emberflow.strategies.transport.array_connection import ArrayConnection, Fields
from emberflow.strategies.transport.interface import Array

TRIES = 3  # new connections for one request; more would only hide a server that fails on it

log = logging.getLogger("emberflow")


@dataclass(frozen=True, kw_only=True)
class PushResult:
    """The result of a push.

    Attributes:
        stale: Pushes of others that were merged between this worker's pull and its push; the maximum of all servers.
        counted: Whether it was merged; a push that was received before is not merged again.
    """

    stale: int
    counted: bool


class PeriodicClient:
    """One worker's connections to all servers.

    Values are lists of flat arrays, one for each variable.

    Args:
        addresses: ``host:port`` of each server, in index order.
        key: The run's secret.
        rank: This worker's number.
        attempt: Counts the starts of this worker; a newer one replaces an older one.
        join_timeout: Seconds until it must be connected.
        exchange_timeout: Seconds after which a server that does not answer is an error.
        encrypt: Whether values are encrypted.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        key: bytes,
        rank: int,
        attempt: int = 0,
        join_timeout: float = JOIN_TIMEOUT,
        exchange_timeout: float = EXCHANGE_TIMEOUT,
        encrypt: bool = False,
    ) -> None:
        self.rank = rank
        self._key = key
        self._attempt = attempt
        self._join_timeout = join_timeout
        self._timeout = exchange_timeout
        self._encrypts = encrypt
        self._number = 0
        self._combiner: Combiner = "delta"
        self._servers = [_Server(index, address) for index, address in enumerate(addresses)]

    def open(self, specs: Sequence[VariableSpec], values: Sequence[Array], combiner: Combiner) -> list[Array]:
        """Connect; return the servers' values. The servers start with the chief's values."""
        self._combiner = combiner
        for server, layout in zip(self._servers, layouts_of(specs, len(self._servers)), strict=True):
            server.allocate(layout)
            if self.rank == 0:
                server.set_pulled(values)
        for server in self._servers:
            self._connect(server, with_values=self.rank == 0)
        return self._pulled(values)

    def exchange(self, values: Sequence[Array], place: Any = None) -> tuple[list[Array], PushResult]:
        """Push what was trained since the last pull; return the servers' values after it."""
        self._number += 1
        fields = {"number": self._number, "attempt": self._attempt, "place": place}
        answers = self._request(
            FrameKind.PUSH, lambda server: (fields | {"pulled": server.version}, server.push_of(values))
        )
        stale = max(answer["stale"] for answer in answers)
        return self._pulled(values), PushResult(
            stale=stale, counted=all(answer["counted"] for answer in answers)
        )

    def pull(self, values: Sequence[Array]) -> tuple[list[Array], dict[str, Any]]:
        """Return the servers' values, in arrays like `values`, and where each worker was at its last push.

        What was trained since the last pull is not in them, and is pushed later as if nothing had been pulled.
        """
        held = [(server.pulled.copy(), server.version) for server in self._servers]
        answers = self._request(FrameKind.PULL, lambda _: ({}, None))
        current = self._pulled(values)
        for server, (pulled, version) in zip(self._servers, held, strict=True):
            server.pulled, server.version = pulled, version
        return current, answers[0]["places"]

    def finish(self, values: Sequence[Array]) -> tuple[list[Array], list[int]]:
        """Wait until all other workers are done; return the values, and the ranks of lost workers."""
        answers = self._request(FrameKind.FINISH, lambda _: ({}, None))
        while expected := sorted({rank for answer in answers for rank in answer.get("expected", ())}):
            log.info("periodic averaging: waiting for ranks %s, which still train", expected)
            answers = self._request(FrameKind.FINISH, lambda _: ({}, None))
        return self._pulled(values), sorted({rank for answer in answers for rank in answer["missing"]})

    def leave(self) -> None:
        """Tell the servers that this worker is done, and disconnect. May be called twice."""
        for server in self._servers:
            if server.connection is not None:
                with contextlib.suppress(OSError):  # a server that is gone need not be told
                    server.connection.send(FrameKind.LEAVE, {})
                    server.connection.receive(self._timeout)
        self.close()

    def decline(self) -> None:
        """Tell all servers that this worker, which never opened, is done: the chief must not wait for it."""
        with contextlib.suppress(OSError, PeerError):
            for server in self._servers:
                connection = self._dial(server)
                connection.send(FrameKind.LEAVE, {"rank": self.rank})
                connection.receive(self._timeout)
        self.close()

    def close(self) -> None:
        """Disconnect without a message."""
        for server in self._servers:
            if server.connection is not None:
                server.connection.close()
                server.connection = None

    def _pulled(self, like: Sequence[Array]) -> list[Array]:
        values = [np.empty(array.size, array.dtype) for array in like]
        for server in self._servers:
            for piece in server.layout.pieces:
                np.copyto(values[piece.variable][piece.start : piece.stop], piece.values(server.pulled))
        return values

    def _request(self, kind: int, make: "Callable[[_Server], tuple[Fields, Array | None]]") -> list[Fields]:
        """Send a request to all servers, then receive all answers; repeat it where the connection broke."""
        requests = [make(server) for server in self._servers]
        broken = []
        for server, (fields, push) in zip(self._servers, requests, strict=True):
            try:
                _connection_of(server).send(kind, fields, *(() if push is None else (push,)))
            except TimeoutError as error:
                raise self._timed_out(server) from error
            except OSError:
                broken.append(server)
        answers = []
        for server, (fields, push) in zip(self._servers, requests, strict=True):
            try:
                if server in broken:
                    raise ConnectionResetError
                answers.append(server.answer(self._timeout))
            except TimeoutError as error:
                raise self._timed_out(server) from error
            except OSError:
                answers.append(self._retry(server, kind, fields, push))
        return answers

    def _retry(self, server: "_Server", kind: int, fields: Fields, push: Array | None) -> Fields:
        """Repeat a request over a new connection. A push keeps its number, so that it is merged once."""
        version = server.version
        for _ in range(TRIES):
            try:
                self._connect(server, with_values=False)
                server.version = version
                _connection_of(server).send(kind, fields, *(() if push is None else (push,)))
                return server.answer(self._timeout)
            except TimeoutError as error:
                raise self._timed_out(server) from error
            except OSError:
                continue
        raise _lost(server, f"closed the connection {TRIES} times")

    def _timed_out(self, server: "_Server") -> PeerError:
        self.close()  # a late answer would be read as that to the next request
        return _lost(server, f"did not answer for {self._timeout:g} s (exchange_timeout)")

    def _dial(self, server: "_Server") -> ArrayConnection:
        """Make an authenticated connection."""
        host, port = host_and_port(server.address)
        try:
            sock = dial(host, port, self._key, purpose_of(server.index), self._join_timeout)
        except (OSError, PeerError) as error:
            why = error.problem if isinstance(error, PeerError) else str(error)
            raise _lost(server, f"could not be reached: {why}") from error
        if server.connection is not None:
            server.connection.close()
        server.connection = ArrayConnection(sock, self._timeout, encrypt=self._encrypts)
        return server.connection

    def _connect(self, server: "_Server", *, with_values: bool) -> None:
        connection = self._dial(server)
        fields: Fields = {
            "rank": self.rank,
            "attempt": self._attempt,
            "layout": server.layout.to_json(),
            "has_values": with_values,
        }
        if with_values:
            if callable(self._combiner):
                fields["function"] = cloudpickle.dumps(self._combiner).hex()
            connection.send(FrameKind.OPEN, fields, server.pulled)
        else:
            connection.send(FrameKind.OPEN, fields)
        try:
            # The server itself waits for the chief's values.
            server.answer(self._join_timeout + self._timeout)
        except OSError as error:
            raise _lost(server, f"did not answer the first request: {error}") from error


class _Server:
    """One server as a worker sees it: the connection, the values of the last pull, and a buffer for pushes."""

    def __init__(self, index: int, address: str) -> None:
        self.index = index
        self.address = address
        self.connection: ArrayConnection | None = None
        self.version = 0
        self.layout = Layout(pieces=(), nbytes=0, push_nbytes=0)
        self.pulled: Array = np.empty(0, np.uint8)
        self._push: Array = np.empty(0, np.uint8)

    def allocate(self, layout: Layout) -> None:
        """Make the buffers."""
        self.layout = layout
        self.pulled = np.zeros(layout.nbytes, np.uint8)
        self._push = np.zeros(layout.push_nbytes, np.uint8)

    def set_pulled(self, values: Sequence[Array]) -> None:
        """Use these values as if they had been pulled."""
        for piece in self.layout.pieces:
            np.copyto(piece.values(self.pulled), values[piece.variable][piece.start : piece.stop])

    def push_of(self, values: Sequence[Array]) -> Array:
        """Return what to push for these values, compared with what was pulled."""
        for piece in self.layout.pieces:
            new = values[piece.variable][piece.start : piece.stop]
            write_push(piece.spec.rule, new, piece.values(self.pulled), piece.push(self._push))
        return self._push

    def answer(self, wait: float) -> Fields:
        """Wait for the server's answer, which must begin within `wait` seconds; keep the values in it."""
        if self.connection is None:
            raise ConnectionResetError("not connected")
        kind, fields, nbytes = self.connection.receive(wait)
        if kind == FrameKind.REFUSAL:
            raise PeerError(fields["problem"], fields["fix"])
        if "expected" in fields:  # not the values yet
            return fields
        self.connection.receive_arrays(nbytes, self.pulled)
        self.version = fields["version"]
        return fields


def _connection_of(server: _Server) -> ArrayConnection:
    if server.connection is None:
        raise _lost(server, "is not connected any more")
    return server.connection


def _lost(server: _Server, what: str) -> PeerError:
    return PeerError(
        f"Parameter server {server.index} {what}. Received: address={server.address!r}.",
        fix="Look at the log of that ps; with max_restarts the run starts again from its last checkpoint.",
    )
