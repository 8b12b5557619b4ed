"""The results of an inference on a node: as many as rows were asked for, or an error that has both numbers."""

import functools
import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from emberflow_compat import deadlines
from tensorflowonspark.marker import EndPartition
from tensorflowonspark.node_queues import RowQueue
from tensorflowonspark.old_errors import NoResults, ResultsError, feed_timeout_error

UNTIL_THE_END = "Call batch_results with one result per row, until should_stop."


class Results:
    """Rows go to your function, and the task that asked waits for their results; one request at a time."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._changed = threading.Condition()
        self._wanted = 0
        self._given: list[Any] = []
        self._giver = 0  # the thread that gives results
        self._end: EndPartition | None = None  # comes after the rows
        self._queue: RowQueue | None = None
        self._is_over, self._fix = "", UNTIL_THE_END
        self._requests = 0
        self._has_failed = False  # the last request, or it is not answered yet

    def ask(self, chunks: Sequence[list[Any]], queue: RowQueue, feed_timeout: float) -> list[Any]:
        """Bring the rows to your function; return the results of each chunk, or why there are none.

        Args:
            chunks: The rows.
            queue: Where your function takes them.
            feed_timeout: Seconds without a result after which it is given up.
        """
        ends = [
            0,
            *itertools.accumulate(map(len, chunks)),
        ]  # now: your function may change the lists that it takes
        with self._asking:
            with self._changed:
                self._requests += 1
                self._has_failed = True
                self._changed.notify_all()
                self._wanted, self._given, self._giver = ends[-1], [], 0
                self._end = EndPartition()
                self._queue = queue
            try:
                for rows in (*chunks, [self._end]):
                    queue.bring(rows)
                results = self._await(feed_timeout)
                self._has_failed = False
            except ResultsError as error:
                return [NoResults(error.problem, error.fix)] * len(chunks)
            finally:
                with self._changed:
                    self._wanted = 0
        return [results[first:end] for first, end in itertools.pairwise(ends)]

    def give(self, results: Iterable[Any]) -> None:
        """Take results of your function; those that nobody has asked for are dropped.

        Raises:
            ResultsError: There are more than rows.
        """
        with self._changed:
            if not self._wanted:
                return
            self._given.extend(results)
            self._giver = threading.get_ident()
            self._changed.notify_all()
            if len(self._given) > self._wanted:
                raise _wrong_number(len(self._given), self._wanted)

    def check_given(self) -> None:
        """Refuse to let the thread that gives results wait for rows: the task waits for results that never come."""
        with self._changed:
            are_all_taken = self._queue is not None and self._queue.last_marker is self._end
            is_giver = self._giver == threading.get_ident()
            if are_all_taken and is_giver and 0 < self._wanted != len(self._given):
                raise _wrong_number(len(self._given), self._wanted)

    def fail(self, why: str, fix: str = UNTIL_THE_END) -> None:
        """Answer whoever asks, now or later, that there will be no results."""
        with self._changed:
            self._is_over, self._fix = why, fix
            self._changed.notify_all()

    def tell(self, why: str) -> None:
        """Answer whoever asks why your function raised, until nobody asks any more.

        Spark repeats a task that fails and shows the error of the last time: without an answer it would be that
        the node is gone.
        """
        until = time.monotonic() + deadlines.REPEATED_TASKS
        with self._changed:
            if not self._has_failed:
                return
            self.fail(why, "Correct the function.")
            requests = -1
            while requests != self._requests and time.monotonic() < until:
                requests = self._requests
                self._changed.wait_for(
                    functools.partial(self._is_asked_again, requests), deadlines.REPEATED_TASK
                )

    def _is_asked_again(self, requests: int) -> bool:
        return self._requests != requests

    def _await(self, feed_timeout: float) -> list[Any]:
        with self._changed:
            seen = -1
            while len(self._given) != self._wanted:
                if self._is_over or len(self._given) > self._wanted:
                    raise ResultsError(
                        "Each row must get its result. Received: "
                        f"{len(self._given)} results for {self._wanted} rows. {self._is_over}",
                        fix=self._fix,
                    )
                if seen == len(self._given):
                    late = feed_timeout_error(feed_timeout, f"{seen} results for {self._wanted} rows")
                    raise ResultsError(late.problem, late.fix)
                seen = len(self._given)
                self._changed.wait_for(functools.partial(self._has_news, seen), feed_timeout)
            return self._given

    def _has_news(self, seen: int) -> bool:
        return len(self._given) != seen or bool(self._is_over)


def _wrong_number(given: int, wanted: int) -> ResultsError:
    return ResultsError(
        f"The results must be one per row of a partition. Received: {given} results for {wanted} rows.",
        fix="Call batch_results with one result for each row of next_batch, in their order; "
        "DataFeed(ctx.mgr, train_mode=False) ends a batch with its partition.",
    )
