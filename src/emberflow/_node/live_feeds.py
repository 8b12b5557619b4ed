"""The rows of a live cluster on one node: feeding tasks dial it, and your function takes what they bring.

Two listening sockets, and one thread per feeding task that is connected. Neither the driver nor your function waits
for a feeding task.
"""

import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from emberflow._feed.batch_connection import FEED, BatchConnection
from emberflow._node.node_spec import LiveSpec, NodeSpec
from emberflow._node.request_feed import Request, RequestFeed
from emberflow._node.round_feed import Round, RoundFeed
from emberflow._node.row_counts import RowCounts
from emberflow._node.spooled_rows import KnownColumns, SpoolSettings
from emberflow._node.stream_feed import RowStream, StreamFeed
from emberflow._plan import deadlines
from emberflow._protocol.acceptor import Acceptor
from emberflow._protocol.codec import Message
from emberflow._protocol.derived_keys import feed_key, warm_key
from emberflow._protocol.live_messages import (
    WARM,
    CommitAnswer,
    FeedClosed,
    FeedOpened,
    FeedsEnd,
    FeedStopped,
    PartitionBegin,
    RequestsBegin,
    RoundBegin,
    RoundDropped,
    RoundReady,
    StopFeeding,
)
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._protocol.sockets import address_of, listen, listen_abstract
from emberflow.errors import ClusterError, ConfigError, EmberflowError, PeerError

log = logging.getLogger("emberflow")

Feed = TypeVar("Feed", StreamFeed, RequestFeed)
Item = TypeVar("Item", Round, Request)


class LiveFeeds:
    """What a node of a live cluster receives, from its start to `close`.

    Args:
        spec: The node.
        send: Sends a message to the driver; any thread may call it.

    Attributes:
        endpoint: What the driver must know of it: "feed", its TCP address; "feed_name", its name among the abstract
            Unix sockets of its host, where there are any; "jvm", the process id of its executor's JVM; "devices", its
            GPUs.
        warm_key: Between tasks and the warm starter of an idle node.
    """

    def __init__(self, spec: NodeSpec, send: Callable[[Message], None]) -> None:
        live = spec.live or LiveSpec()
        self._send = send
        self._timeout = spec.plan.exchange_timeout
        self._encrypts = spec.plan.encrypt
        self._lock = threading.Lock()
        self._connections: dict[BatchConnection, threading.Thread] = {}
        self._opened: set[tuple[str, str]] = set()
        self._is_closed = False
        self._settings, self._columns = SpoolSettings(spec), KnownColumns()
        self._counts = RowCounts(send)
        self._backlog = live.backlog
        self._rounds = RoundFeed(
            spec.me.rank,
            self._settings,
            Path(spec.folder),
            self._columns,
            self._counts,
            send,
            is_asynchronous=spec.plan.is_asynchronous,
        )
        self._streams: dict[str, StreamFeed] = {}
        self._requests: dict[str, RequestFeed] = {}
        self._are_over = threading.Event()
        self.warm_key = warm_key(spec.key)
        key = feed_key(spec.key)
        listener = listen(spec.host, ports=spec.plan.port_range, what="rows of a live cluster")
        self.endpoint = {
            "feed": address_of(spec.host, listener.getsockname()[1]),
            "jvm": str(live.jvm),
            "devices": ",".join(spec.devices),
        }
        listeners = [listener]
        if sys.platform == "linux":
            name = f"emberflow-feed-{secrets.token_hex(16)}"
            listeners.append(listen_abstract(name))
            self.endpoint["feed_name"] = name
        self._acceptors = [Acceptor(each, key=key, purpose=FEED, admit=self._admit) for each in listeners]

    def rounds(self) -> Iterator[Round]:
        """Yield what each call of ``cluster.train`` brings, once per epoch, until the cluster is stopped."""
        self._open("rounds", "")
        return self._until_left("rounds", "", self._rounds.rounds())

    def stream(self, name: str = "train") -> RowStream:
        """Return the rows of ``cluster.train`` as they come, each node at its own pace."""
        with self._lock:
            if name not in self._streams:
                self._streams[name] = StreamFeed(
                    name, self._settings, self._columns, self._counts, self._send, self._backlog
                )
            feed = self._streams[name]
            if self._are_over.is_set():
                feed.end()
        self._open("stream", name)
        return RowStream(name, feed)

    def stop_feeding(self, name: str = "train") -> None:
        """Have the feeding jobs of a stream end at once; rows that were not taken are dropped."""
        self._send(StopFeeding(name))

    def requests(self, name: str = "infer") -> Iterator[Request]:
        """Yield the requests of ``cluster.infer``, until the cluster is stopped."""
        with self._lock:
            feed = self._requests.setdefault(name, RequestFeed(name, self._counts))
            if self._are_over.is_set():
                feed.end()
        self._open("requests", name)
        return self._until_left("requests", name, feed.requests())

    def announce_warm(self, name: str) -> None:
        """Tell the driver the name of this node's warm starter."""
        self._send(FeedOpened(WARM, name))

    def wait_until_over(self) -> None:
        """Return when the cluster is stopped."""
        self._are_over.wait()

    def on_message(self, message: Message) -> None:
        """Handle a message of the driver; it does not block."""
        match message:
            case RoundReady():
                self._rounds.on_ready(message)
            case RoundDropped(number):
                self._rounds.on_dropped(number)
            case CommitAnswer():
                for feed in self._all_streams():
                    feed.on_answer(message)
            case FeedStopped(job):
                for feed in self._all_streams():
                    feed.on_stopped(job)
            case FeedsEnd():
                self._end()

    def close(self, error: EmberflowError | None = None) -> None:
        """Refuse what still comes, close all connections and drop all rows that were not taken. May be called twice.

        Args:
            error: What your function raised: the tasks that wait for it are told.
        """
        with self._lock:
            self._is_closed = True
            requests = list(self._requests.values())
        reason = error or _stopped()
        for feed in requests:
            feed.fail(reason)
        for stream in self._all_streams():
            stream.close()
        for acceptor in self._acceptors:
            acceptor.close()
        self._join(deadlines.FEED_REFUSAL_TIMEOUT)
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        self._join(deadlines.FEEDS_CLOSE_TIMEOUT)
        self._rounds.close()
        self._counts.close()

    def _end(self) -> None:
        with self._lock:
            self._are_over.set()
            requests = list(self._requests.values())
        self._rounds.end()
        for feed in requests:
            feed.end()
        for stream in self._all_streams():
            stream.end()

    def _open(self, kind: str, name: str) -> None:
        self._rounds.leave_if_over()
        if (kind, name) not in self._opened:
            self._opened.add((kind, name))
            self._send(FeedOpened(kind, name))

    def _until_left(self, kind: str, name: str, items: Iterator[Item]) -> Iterator[Item]:
        """Yield the items; when your function leaves its loop, tell the driver, and refuse what still comes."""
        try:
            yield from items
        finally:
            self._leave(kind, name)

    def _leave(self, kind: str, name: str) -> None:
        with self._lock:
            if self._is_closed or self._are_over.is_set():  # it ended by itself
                return
            self._opened.discard((kind, name))
            requests = self._requests.pop(name, None) if kind == "requests" else None
        self._send(FeedClosed(kind, name, self._rounds.last))
        if requests is not None:
            requests.fail(_left(name))

    def _admit(self, sock: SealedSocket) -> None:
        connection = BatchConnection(sock, self._timeout, encrypt=self._encrypts)
        thread = threading.Thread(target=self._serve, args=(connection,), name="emberflow-feed", daemon=True)
        with self._lock:
            if self._is_closed:
                connection.close()
                return
            self._connections[connection] = thread
        thread.start()

    def _serve(self, connection: BatchConnection) -> None:
        try:
            self._dispatch(connection)
        except PeerError as error:
            log.warning("A feeding task is not answered: %s", error)
        except EmberflowError as error:  # before OSError: a disk that fails is one as well
            connection.refuse(error)
        except OSError as error:
            log.debug("A feeding task is gone: %s", error)
        except Exception as error:  # the task must not wait for a thread that is gone
            log.exception("A feeding task could not be served.")
            connection.refuse(_unexpected(error))
        finally:
            connection.close()
            with self._lock:
                self._connections.pop(connection, None)

    def _dispatch(self, connection: BatchConnection) -> None:
        match connection.receive():
            case RoundBegin() as begin:
                self._rounds.serve(connection, begin)
            case PartitionBegin() as begin:
                self._found(self._streams, begin.name, "stream").serve(connection, begin)
            case RequestsBegin(name):
                self._found(self._requests, name, "requests").serve(connection)
            case message:
                raise PeerError(
                    f"A feeding task must begin with what it brings. Received: {message!r:.80}.",
                    fix="Check that driver and executors run the same version of emberflow.",
                )

    def _found(self, feeds: Mapping[str, Feed], name: str, kind: str) -> Feed:
        with self._lock:
            if name in feeds:
                return feeds[name]
            known = ", ".join(feeds) or "none"
        raise ConfigError(
            f"`name` must be one that your function asks for. Received: {name!r}; there are: {known}.",
            fix=f"Call ctx.{kind}({name!r}) in your function.",
        )

    def _all_streams(self) -> list[StreamFeed]:
        with self._lock:
            return list(self._streams.values())

    def _join(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        with self._lock:
            threads = list(self._connections.values())
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(end - time.monotonic(), 0.0))


def _left(name: str) -> EmberflowError:
    return ClusterError(
        f"Your function must take requests while it is asked. Received: it has left its loop over "
        f"ctx.requests({name!r}).",
        fix="Let the loop run until it ends by itself, with cluster.stop.",
    )


def _stopped() -> EmberflowError:
    return ClusterError(
        "The cluster must run while it is fed. Received: it has ended.",
        fix="Feed it before cluster.stop, or start another one.",
    )


def _unexpected(error: Exception) -> EmberflowError:
    return ClusterError(
        f"The node could not take the rows. Received: {type(error).__name__}: {error}",
        fix="Look at the log of the node; it has the whole traceback.",
    )
