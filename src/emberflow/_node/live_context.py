"""The part of `ctx` that a live cluster adds: what later calls of the driver bring."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from emberflow._node.live_feeds import LiveFeeds
    from emberflow._node.request_feed import Request
    from emberflow._node.round_feed import Round
    from emberflow._node.stream_feed import RowStream


class LiveContext:
    """What `Context` can do in `ef.cluster`; its attributes are the context's."""

    role: str
    _live: "LiveFeeds | None"

    def rounds(self) -> "Iterator[Round]":
        """Yield what each call of ``cluster.train`` brings, once per epoch, until the cluster is stopped.

        All workers get a round at the same time, each its own rows, every row exactly once over all workers. So a
        model of `distribute` trains as one process would. ``cluster.train`` returns when every worker asks for the
        next round.
        """
        return self._feeds("rounds").rounds()

    def stream(self, name: str = "train") -> "RowStream":
        """Return the rows of ``cluster.train`` as they come, each worker at its own pace, until it is stopped.

        Args:
            name: The name that ``cluster.train`` passes.
        """
        return self._feeds("stream").stream(name)

    def stop_feeding(self, name: str = "train") -> None:
        """End a call of ``cluster.train`` that feeds a stream: rows that were not taken yet are dropped.

        Args:
            name: The name of the stream.
        """
        self._feeds("stop_feeding").stop_feeding(name)

    def requests(self, name: str = "infer") -> "Iterator[Request]":
        """Yield batches of rows that ``cluster.infer`` sends, until the cluster is stopped; reply to each.

        Args:
            name: The name that ``cluster.infer`` passes.
        """
        return self._feeds("requests").requests(name)

    def _feeds(self, method: str) -> "LiveFeeds":
        if self._live is None:
            raise ConfigError(
                f"ctx.{method}() is for the chief and workers of ef.cluster. Received: role={self.role!r}, without "
                "a live cluster's feeds.",
                fix="Start the function by ef.cluster(fn, workers=...), or read ctx.dataset() in ef.run.",
            )
        return self._live
