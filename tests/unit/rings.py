"""Rings whose ranks are threads of the test."""

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from emberflow.strategies.transport.ring import Ring
from emberflow.strategies.transport.ring_link import RingLink

KEY = secrets.token_bytes(32)


@contextlib.contextmanager
def joined(
    ranks: int, receive_timeout: float = 10.0, *, hosts: Sequence[str] = (), encrypt: bool = False
) -> Iterator[list[Ring]]:
    listeners = [Ring.listen("127.0.0.1") for _ in range(ranks)]
    addresses = [listener.address for listener in listeners]

    def join(rank: int) -> Ring:
        return Ring.connect(
            listeners[rank],
            rank=rank,
            addresses=addresses,
            key=KEY,
            timeout=5,
            receive_timeout=receive_timeout,
            encrypt=encrypt,
            hosts=hosts,
        )

    with ThreadPoolExecutor(ranks) as pool:
        rings = list(pool.map(join, range(ranks)))
    try:
        yield rings
    finally:
        for ring in rings:
            ring.close()


def on_all(rings: list[Ring], work: Callable[[Ring], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(rings)) as pool:
        return list(pool.map(work, rings))


class Counted:
    """Counts the bytes and frames that a ring's links are asked to send."""

    def __init__(self, ring: Ring) -> None:
        self.bytes = 0
        self.frames = 0
        for link in ring.peers.links:
            self._count(link)

    def _count(self, link: RingLink) -> None:
        inner = link.send

        def send(data: Sequence[memoryview], tag: int = 0) -> None:
            self.bytes += sum(piece.nbytes for piece in data)
            self.frames += 1
            inner(data, tag)

        link.send = send  # type: ignore[method-assign]
