"""Requests on a node: rows that want a result each, from the tasks of ``cluster.infer``."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

from emberflow._feed.arrays import leaf_columns
from emberflow._feed.batch_connection import BatchConnection
from emberflow._feed.replies import reply_batch
from emberflow._feed.request_columns import columns_of
from emberflow._node.row_counts import RowCounts
from emberflow._protocol.live_messages import ReplyFollows
from emberflow.errors import ClusterError, DataError, EmberflowError

Answer = tuple[Any, Any] | EmberflowError  # a schema and a serialized batch, or why there is none


class _Pending:
    """A request from its arrival to its answer; the first answer counts."""

    def __init__(self, connection: BatchConnection) -> None:
        self.connection = connection
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def answer(self, answer: Answer) -> None:
        self._answers.put(answer)

    def wait(self) -> Answer:
        return self._answers.get()


class Request:
    """Rows that want one result each; `reply` sends them.

    Attributes:
        rows: How many there are.
        batch: The rows as an Arrow record batch.
        columns: Their names.
    """

    def __init__(self, batch: Any, pending: _Pending) -> None:
        self.batch = batch
        self.rows: int = batch.num_rows
        self.columns: tuple[str, ...] = tuple(leaf.name for leaf in leaf_columns(batch.schema))
        self._pending = pending
        self._is_answered = False

    def __repr__(self) -> str:
        return f"Request(rows={self.rows}, columns={self.columns})"

    def numpy(self, *columns: str) -> dict[str, Any]:
        """Return columns, or all of them, as numpy arrays; lists of equal length become further dimensions."""
        return columns_of(self.batch, columns or self.columns)

    def reply(self, result: Any) -> None:
        """Send the results of all rows, in the order of the rows.

        A result with another number of rows is an error in the job that asked; your function goes on.

        Args:
            result: An array, which becomes the column "prediction"; a dict of arrays by column; an Arrow record batch
                or table.
        """
        if self._is_answered:
            raise DataError(
                f"A request must get one reply. Received: a second one, for {self.rows} rows.",
                fix="Call request.reply once, with the results of all its rows.",
            )
        batch = reply_batch(result)
        self._is_answered = True
        if batch.num_rows == self.rows:
            self._pending.answer((batch.schema, batch.serialize()))
        else:
            self._pending.answer(
                DataError(
                    "A reply must have one result for each row of its request. "
                    f"Received: {batch.num_rows} results for {self.rows} rows.",
                    fix="Reply with results for all rows of the request, in their order, and for no others.",
                )
            )

    def _give_up(self) -> None:
        """Tell the task that there will be no reply: else it would wait for ever."""
        if not self._is_answered:
            self._is_answered = True
            self._pending.answer(
                DataError(
                    f"Your function must reply to each request. Received: no reply for {self.rows} rows.",
                    fix="Call request.reply(...) before you ask ctx.requests() for the next one.",
                )
            )


class RequestFeed:
    """The requests of one name on one node.

    Args:
        name: Their name.
        counts: Of the rows of this node.
    """

    def __init__(self, name: str, counts: RowCounts) -> None:
        self._name = name
        self._counts = counts
        self._changed = threading.Condition()
        self._waiting: list[tuple[Any, _Pending]] = []
        self._unanswered: set[_Pending] = set()
        self._is_over = False
        self._error: EmberflowError | None = None

    def serve(self, connection: BatchConnection) -> None:
        """Put each batch of a connection into the queue, and send what your function replies."""
        for batch in connection.receive_stream():
            pending = _Pending(connection)
            self._put(batch, pending)
            answer = pending.wait()
            with self._changed:
                self._unanswered.discard(pending)
            if isinstance(answer, EmberflowError):
                raise answer
            connection.send(ReplyFollows())
            connection.send_serialized(*answer)

    def requests(self) -> Iterator[Request]:
        """Yield each request, until the cluster is stopped and none waits."""
        while (request := self._next()) is not None:
            yield request
            request._give_up()  # noqa: SLF001 - a class of this file

    def end(self) -> None:
        """End after the requests that have arrived."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def fail(self, error: EmberflowError) -> None:
        """Answer all requests with an error, also those that still come."""
        with self._changed:
            self._error = error
            self._waiting.clear()
            self._is_over = True
            self._changed.notify_all()
            for pending in self._unanswered:
                pending.answer(error)

    def _put(self, batch: Any, pending: _Pending) -> None:
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._is_over:
                raise ClusterError(
                    f"The cluster must run while it is asked. Received: a request for {self._name!r} after its end.",
                    fix="Compute the DataFrame of cluster.infer (collect, write, cache) before cluster.stop.",
                )
            self._waiting.append((batch, pending))
            self._counts.add(batch.num_rows)
            self._unanswered.add(pending)
            self._changed.notify()

    def _next(self) -> Request | None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_over)
                if not self._waiting:
                    return None
                batch, pending = self._waiting.pop(0)
            if pending.connection.has_input():  # a task that waits sends nothing: it is gone
                self._counts.add(-batch.num_rows)
                pending.answer(_gone())
                continue
            self._counts.take(batch.num_rows)
            return Request(batch, pending)


def _gone() -> EmberflowError:
    return ClusterError(
        "The task that asked must wait for its reply. Received: it is gone.", fix="Spark retries it."
    )
