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
from emberflow.strategies.periodic.value_layout import Layout, Spec, layouts_of
from emberflow.strategies.transport.array_frames import (
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

TRIES = 3

log = logging.getLogger("emberflow")


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """What came of a push.

    Attributes:
        stale: Pushes of others that the centre took between this worker's pull and its push; the most of all servers.
        counted: Whether it counted; a push that had come before does not.
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
        attempt: Counts the starts of this worker; a newer one takes the place of an older.
        join_timeout: Seconds to connect in.
        exchange_timeout: Seconds after which a server that does not answer is an error.
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
    ) -> None:
        self.rank = rank
        self._key = key
        self._attempt = attempt
        self._join_timeout = join_timeout
        self._timeout = exchange_timeout
        self._number = 0
        self._combiner: Combiner = "delta"
        self._servers = [_Server(index, address) for index, address in enumerate(addresses)]

    def open(self, specs: Sequence[Spec], values: Sequence[Array], combiner: Combiner) -> list[Array]:
        """Connect; return the centre's values. The chief's values are what the centre begins with."""
        self._combiner = combiner
        for server, layout in zip(self._servers, layouts_of(specs, len(self._servers)), strict=True):
            server.lay_out(layout)
            if self.rank == 0:
                server.keep(values)
        for server in self._servers:
            self._connect(server, with_values=self.rank == 0)
        return self._pulled(values)

    def exchange(self, values: Sequence[Array], place: Any = None) -> tuple[list[Array], Exchanged]:
        """Push what was trained since the last pull; return the centre's values after it."""
        self._number += 1
        facts = {"number": self._number, "attempt": self._attempt, "place": place}
        answers = self._ask(PUSH, lambda server: (facts | {"pulled": server.version}, server.loaded(values)))
        stale = max(answer["stale"] for answer in answers)
        return self._pulled(values), Exchanged(
            stale=stale, counted=all(answer["counted"] for answer in answers)
        )

    def pull(self, values: Sequence[Array]) -> tuple[list[Array], dict[str, Any]]:
        """Return the centre's values, in arrays like `values`, and where each worker stood at its last push.

        What was trained since the last pull is not in them, and is pushed later as if nothing had been pulled.
        """
        held = [(server.centre.copy(), server.version) for server in self._servers]
        answers = self._ask(PULL, lambda _: ({}, None))
        centre = self._pulled(values)
        for server, (pulled, version) in zip(self._servers, held, strict=True):
            server.centre, server.version = pulled, version
        return centre, answers[0]["places"]

    def finish(self, values: Sequence[Array]) -> tuple[list[Array], list[int]]:
        """Wait until all other workers have pushed their last; return the values, and who was lost on the way."""
        answers = self._ask(FINISH, lambda _: ({}, None))
        while awaited := sorted({rank for answer in answers for rank in answer.get("awaited", ())}):
            log.info("periodic averaging: waiting for ranks %s, which still train", awaited)
            answers = self._ask(FINISH, lambda _: ({}, None))
        return self._pulled(values), sorted({rank for answer in answers for rank in answer["missing"]})

    def leave(self) -> None:
        """Say that this worker is done, and hang up. May be called twice."""
        for server in self._servers:
            if server.wire is not None:
                with contextlib.suppress(OSError):  # it is gone, and so is what we would have told it
                    server.wire.send(LEAVE, {})
                    server.wire.receive(self._timeout)
        self.close()

    def excuse(self) -> None:
        """Tell all servers that this worker is done, where it never opened: the chief need not wait for it."""
        with contextlib.suppress(OSError, PeerError):
            for server in self._servers:
                wire = self._dial(server)
                wire.send(LEAVE, {"rank": self.rank})
                wire.receive(self._timeout)
        self.close()

    def close(self) -> None:
        """Hang up without a word."""
        for server in self._servers:
            if server.wire is not None:
                server.wire.close()
                server.wire = None

    def _pulled(self, like: Sequence[Array]) -> list[Array]:
        values = [np.empty(array.size, array.dtype) for array in like]
        for server in self._servers:
            for piece in server.layout.pieces:
                np.copyto(values[piece.variable][piece.start : piece.stop], piece.centre(server.centre))
        return values

    def _ask(self, kind: int, make: "Callable[[_Server], tuple[Facts, Array | None]]") -> list[Facts]:
        """Send to all servers, then hear from all; a connection that broke is made anew and asked again."""
        asked = [make(server) for server in self._servers]
        broken = []
        for server, (facts, load) in zip(self._servers, asked, strict=True):
            try:
                self._alive(server).send(kind, facts, *(() if load is None else (load,)))
            except TimeoutError as error:
                raise self._silent(server) from error
            except OSError:
                broken.append(server)
        answers = []
        for server, (facts, load) in zip(self._servers, asked, strict=True):
            try:
                if server in broken:
                    raise ConnectionResetError
                answers.append(server.answer(self._timeout))
            except TimeoutError as error:
                raise self._silent(server) from error
            except OSError:
                answers.append(self._ask_again(server, kind, facts, load))
        return answers

    def _ask_again(self, server: "_Server", kind: int, facts: Facts, load: Array | None) -> Facts:
        """Ask over a new connection. The push keeps its number, so that it counts once."""
        version = server.version
        for _ in range(TRIES):
            try:
                self._connect(server, with_values=False)
                server.version = version
                self._alive(server).send(kind, facts, *(() if load is None else (load,)))
                return server.answer(self._timeout)
            except TimeoutError as error:
                raise self._silent(server) from error
            except OSError:
                continue
        raise _lost(server, "hung up again and again")

    def _silent(self, server: "_Server") -> PeerError:
        self.close()  # an answer that comes after all would be taken for that to the next question
        return _lost(server, f"did not answer for {self._timeout:g} s (exchange_timeout)")

    def _alive(self, server: "_Server") -> Wire:
        if server.wire is None:
            raise _lost(server, "is not connected any more")
        return server.wire

    def _dial(self, server: "_Server") -> Wire:
        """Make a proven connection."""
        host, port = host_and_port(server.address)
        try:
            sock = dial(host, port, self._key, purpose_of(server.index), self._join_timeout)
        except (OSError, PeerError) as error:
            why = error.problem if isinstance(error, PeerError) else str(error)
            raise _lost(server, f"could not be reached: {why}") from error
        if server.wire is not None:
            server.wire.close()
        server.wire = Wire(sock, self._timeout)
        return server.wire

    def _connect(self, server: "_Server", *, with_values: bool) -> None:
        wire = self._dial(server)
        facts: Facts = {
            "rank": self.rank,
            "attempt": self._attempt,
            "layout": server.layout.to_json(),
            "brings_values": with_values,
        }
        if with_values:
            if callable(self._combiner):
                facts["function"] = cloudpickle.dumps(self._combiner).hex()
            wire.send(OPEN, facts, server.centre)
        else:
            wire.send(OPEN, facts)
        try:
            server.answer(
                self._join_timeout + self._timeout
            )  # the server itself waits for the chief's values
        except OSError as error:
            raise _lost(server, f"did not answer the first question: {error}") from error


class _Server:
    """One server, seen from a worker: what was pulled from it last, and room for what is pushed."""

    def __init__(self, index: int, address: str) -> None:
        self.index = index
        self.address = address
        self.wire: Wire | None = None
        self.version = 0
        self.layout = Layout(pieces=(), nbytes=0, load_nbytes=0)
        self.centre: Array = np.empty(0, np.uint8)
        self._load: Array = np.empty(0, np.uint8)

    def lay_out(self, layout: Layout) -> None:
        """Make room."""
        self.layout = layout
        self.centre = np.zeros(layout.nbytes, np.uint8)
        self._load = np.zeros(layout.load_nbytes, np.uint8)

    def keep(self, values: Sequence[Array]) -> None:
        """Write values where the pulled ones stand."""
        for piece in self.layout.pieces:
            np.copyto(piece.centre(self.centre), values[piece.variable][piece.start : piece.stop])

    def loaded(self, values: Sequence[Array]) -> Array:
        """Return what to push for these values, measured against what was pulled."""
        for piece in self.layout.pieces:
            new = values[piece.variable][piece.start : piece.stop]
            write_push(piece.spec.rule, new, piece.centre(self.centre), piece.load(self._load))
        return self._load

    def answer(self, wait: float) -> Facts:
        """Wait for the server's answer, which must begin within `wait` seconds; take the values that it brings."""
        if self.wire is None:
            raise ConnectionResetError("not connected")
        kind, facts, nbytes = self.wire.receive(wait)
        if kind == REFUSAL:
            raise PeerError(facts["problem"], facts["fix"])
        if "awaited" in facts:  # not the values yet
            return facts
        self.wire.receive_arrays(nbytes, self.centre)
        self.version = facts["version"]
        return facts


def _lost(server: _Server, what: str) -> PeerError:
    return PeerError(
        f"Parameter server {server.index} {what}. Received: address={server.address!r}.",
        fix="Look at the log of that ps; with max_restarts the run starts again from its last checkpoint.",
    )
