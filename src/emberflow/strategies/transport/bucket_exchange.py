"""Averages gradients on a thread of its own, bucket by bucket, while the next ones are still being computed.

TensorFlow hands over a bucket when its gradients are there (`submit`) and does not wait; it waits once, for all of
them (`wait`). Ops that wait for each bucket would deadlock where TensorFlow has one thread for them. Buckets are sent
by their numbers, in whatever order TensorFlow submits them, so that all ranks send the same at the same time.
"""

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emberflow._plan import deadlines
from emberflow.strategies.transport.interface import Array
from emberflow.strategies.transport.rounded_sum import Residuals

if TYPE_CHECKING:
    from emberflow.strategies.transport.ring import Ring

_Submitted = tuple[int, Sequence[Array]]


@dataclass(kw_only=True, eq=False)
class _Exchange:
    """One average of all gradients.

    Attributes:
        number: Counts the exchanges of this rank.
        head: This rank's numbers that go first.
        buckets: How many follow.
        residuals: What rounding dropped before, if they are rounded.
        submitted: Buckets with their numbers; None when no more will come.
        totals: The sum of all heads.
        averages: The arrays of each bucket.
    """

    number: int
    head: Array
    buckets: int
    residuals: Residuals | None
    submitted: queue.SimpleQueue[_Submitted | None] = field(default_factory=queue.SimpleQueue)
    done: threading.Event = field(default_factory=threading.Event)
    totals: Array | None = None
    averages: list[list[Array]] = field(default_factory=list)
    error: BaseException | None = None


class BucketExchange:
    """The thread of one rank, and the exchange that it is in. The thread starts with the first one."""

    def __init__(self, ring: "Ring") -> None:
        self._ring = ring
        self._exchanges: queue.SimpleQueue[_Exchange | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._current: _Exchange | None = None
        self._count = 0

    def begin(self, head: Array, buckets: int, residuals: Residuals | None = None) -> int:
        """Send the numbers that go first; return the number of this exchange.

        Args:
            head: Any numbers, to be summed. The first is the weight of this rank.
            buckets: How many will be submitted.
            residuals: Given where numbers are rounded on their way.
        """
        if self._current is not None:
            raise self._ring.abandon("did not end its last step: TensorFlow failed in the middle of it")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="emberflow-exchange", daemon=True)
            self._thread.start()
        self._count += 1
        self._current = _Exchange(number=self._count, head=head.copy(), buckets=buckets, residuals=residuals)
        self._exchanges.put(self._current)
        return self._count

    def submit(self, number: int, bucket: int, arrays: Sequence[Array]) -> None:
        """Hand over the arrays of one bucket, which have one type and must not change until the exchange ends."""
        self._at(number).submitted.put((bucket, arrays))

    def wait(self, number: int) -> tuple[Array, list[list[Array]]]:
        """Wait for the end of the exchange; return the sum of all heads, and the averages of each bucket.

        It ends: all buckets have been submitted, and the ring has a deadline for each answer of another rank.
        """
        exchange = self._at(number)
        exchange.done.wait()
        self._current = None
        if exchange.error is not None:
            raise exchange.error
        assert exchange.totals is not None  # noqa: S101 - for the type checker
        return exchange.totals, exchange.averages

    def close(self) -> None:
        """End the thread; an exchange that has not ended never will. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._current is not None:
            self._current.submitted.put(None)
        self._exchanges.put(None)
        if thread is not threading.current_thread():
            thread.join(deadlines.EXCHANGE_END_TIMEOUT)

    def _at(self, number: int) -> _Exchange:
        if self._current is None or self._current.number != number:
            raise self._ring.abandon(f"is at another exchange of gradients than {number}")
        return self._current

    def _run(self) -> None:
        while (exchange := self._exchanges.get()) is not None:
            try:
                self._average(exchange)
            except BaseException as error:  # noqa: BLE001 - raised by `wait`
                exchange.error = error
                self._ring.abandon(f"failed in an exchange ({type(error).__name__}: {error})")
            finally:
                exchange.done.set()

    def _average(self, exchange: _Exchange) -> None:
        totals = self._ring.sum_arrays([exchange.head])[0]
        early: dict[int, Sequence[Array]] = {}
        for bucket in range(exchange.buckets):
            while bucket not in early:
                submitted = exchange.submitted.get()
                if submitted is None:
                    return
                early[submitted[0]] = submitted[1]
            averages = self._ring.average_bucket(
                early.pop(bucket), exchange.head, totals, bucket, exchange.residuals
            )
            exchange.averages.append(averages)
        exchange.totals = totals
