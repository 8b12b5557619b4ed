"""The rows of a node of `TFCluster`: threads bring what Emberflow delivers into the queues that `DataFeed` reads."""

import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tensorflowonspark.node_queues import NodeManager, ResultQueue, RowQueue
from tensorflowonspark.node_results import Results
from tensorflowonspark.row_chunks import pickled, rows_in

NOT_FED = ("output", "error", "control")  # queues that bring no rows to the node
TERMINATED = "tensorflowonspark.terminated"  # what a node reports when it takes no more rows
COLUMNS = "_columns"  # after the name of a queue: its rows come as columns of a DataFrame
ROWS_AT_ONCE = 1024  # of a DataFrame, as Python objects


class NodeFeeds:
    """Everything that is fed to one node, from the start of your function to the end of the cluster.

    Args:
        ctx: Emberflow's context.
        names: The queues that the driver has named.

    Attributes:
        manager: What `ctx.mgr` is.
    """

    def __init__(self, ctx: Any, names: Sequence[str]) -> None:
        self._ctx = ctx
        self._results = Results()
        fed = {name: RowQueue() for name in names if name not in NOT_FED}
        queues: dict[str, RowQueue | ResultQueue] = {name: fed.get(name) or RowQueue() for name in names}
        queues["output"] = ResultQueue(self._results.give)
        self.manager = NodeManager(queues)
        self.manager.on_terminating = self._tell_terminated
        self._fed = list(fed.values())
        self._threads = []
        for name, queue in fed.items():
            queue.on_wait = self._results.check_given
            self._threads.append(self._started(self._feed, name, queue))

    @contextmanager
    def errors_told(self) -> Iterator[None]:
        """Tell the task that waits for results why your function, in the block, raised."""
        try:
            yield
        except (Exception, SystemExit):
            for queue in self._fed:
                queue.drop()
            self._results.tell(f"Exception in worker:\n{traceback.format_exc()}")
            raise

    def finish(self) -> None:
        """Drop what nobody takes any more, until the driver stops the cluster: your function has returned."""
        self._results.fail("Your function has returned.")
        self.manager.set("state", "terminating")
        for thread in self._threads:
            thread.join()

    def _started(self, target: Any, *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name="tensorflowonspark-feed", daemon=True)
        thread.start()
        return thread

    def _feed(self, name: str, queue: RowQueue) -> None:
        """Bring all that comes under one name; then the end."""
        sources = [
            self._started(self._bring, self._bring_chunks, self._ctx.stream(name), queue),
            self._started(self._bring, self._bring_columns, self._ctx.stream(name + COLUMNS), queue),
            self._started(self._bring, self._bring_requests, self._ctx.requests(name), queue),
        ]
        for source in sources:
            source.join()
        queue.put(None)

    def _bring(self, bring: Callable[[Any, RowQueue], None], source: Any, queue: RowQueue) -> None:
        """Bring all rows of a source; what goes wrong is raised where your function takes rows."""
        try:
            bring(source, queue)
        except Exception as error:  # noqa: BLE001 - unpickling rows runs their own code
            queue.fail(error)

    def _bring_chunks(self, stream: Any, queue: RowQueue) -> None:
        while (batch := stream.next(1)) is not None:
            queue.bring(rows_in(batch.column(0)[0].as_py()))

    def _bring_columns(self, stream: Any, queue: RowQueue) -> None:
        while (batch := stream.next(ROWS_AT_ONCE)) is not None:
            queue.bring(list(zip(*(column.to_pylist() for column in batch.columns), strict=True)))

    def _bring_requests(self, requests: Iterable[Any], queue: RowQueue) -> None:
        for request in requests:
            chunks = [rows_in(chunk) for chunk in request.batch.column(0).to_pylist()]
            feed_timeout = request.batch.column(1)[0].as_py()
            answers = self._results.ask(chunks, queue, feed_timeout)
            request.reply(_reply(answers))

    def _tell_terminated(self) -> None:
        self._results.fail("Your function has called terminate().")
        self._ctx.report(**{TERMINATED: 1.0})


def _reply(answers: Sequence[Any]) -> Any:
    import pyarrow as pa

    parts = [pickled(each) for each in answers]
    return pa.record_batch([pa.array(parts, pa.binary())], names=["results"])
