"""Feeding a live cluster from the driver: ``cluster.train`` and ``cluster.infer``."""

import dataclasses
import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.fed_data import FedRdds, read_fed
from emberflow._driver.feeding_job import FeedingJobs
from emberflow._driver.feeding_state import FeedingState
from emberflow._driver.live_inference import inferred_frame, inferred_rdd
from emberflow._driver.round_feeding import NOT_STORED, RoundFeeding, RoundStorage
from emberflow._driver.stream_feeding import StreamFeeding
from emberflow._plan.plan import RunPlan
from emberflow._protocol.codec import Message
from emberflow._protocol.derived_keys import feed_key, ranks_key, warm_key
from emberflow._protocol.live_messages import (
    CommitAsked,
    FeedClosed,
    FeedOpened,
    FeedsEnd,
    PartitionsTaken,
    RoundDone,
    StopFeeding,
)
from emberflow._task.node_dialing import FeedAccess, node_address
from emberflow._task.warm_start import WarmAccess, WarmStarter
from emberflow.config import check_count
from emberflow.errors import ClusterError, EmberflowError
from emberflow.result import FeedResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LiveFeeding:
    """The feeds of one attempt of a live cluster.

    Args:
        spark: The session whose jobs feed the nodes.
        facts: What it is.
        plan: Of the attempt.
        key: The attempt's key; feeding tasks receive one that is derived from it.
        addresses: By rank, the endpoints that the nodes told (`LiveFeeds.endpoint`, among others).
        send: Sends a message to one node.
        broadcast: Sends a message to all.
    """

    def __init__(
        self,
        spark: "SparkSession",
        facts: ClusterFacts,
        plan: RunPlan,
        key: bytes,
        addresses: Sequence[Mapping[str, str]],
        send: Callable[[int, Message], None],
        broadcast: Callable[[Message], None],
    ) -> None:
        self._has_failed = False
        self._spark = spark
        self._ranks_key = ranks_key(key)
        self._plan = plan
        self._schemas: dict[str, bytes] = {}  # of RDDs, by name
        self._broadcast = broadcast
        self._state = FeedingState(plan)
        self._jobs = FeedingJobs(spark, facts, self._state)
        self._numbers = itertools.count()
        nodes = tuple(
            node_address(rank, endpoint) for rank, endpoint in enumerate(addresses) if "feed" in endpoint
        )
        self._access = FeedAccess(
            nodes=nodes, key=feed_key(self._ranks_key), timeout=plan.exchange_timeout, encrypt=plan.encrypt
        )
        trainers = dataclasses.replace(
            self._access, nodes=tuple(node for node in nodes if plan.nodes[node.rank].trains)
        )
        self._rounds = RoundFeeding(plan, trainers, self._state, self._jobs, send)
        self._streams = StreamFeeding(plan, self._state, self._jobs, send, broadcast)

    def train(
        self,
        data: Any,
        epochs: int = 1,
        name: str = "train",
        stored: RoundStorage = NOT_STORED,
        schema: Any = None,
    ) -> FeedResult:
        """Feed the nodes, and return when they are done with the rows.

        Args:
            data: A DataFrame, an RDD of tuples, Rows, dicts or single values, or a dict of either by name.
            epochs: How often the nodes go through the rows.
            name: The name of data that has none.
            stored: Where the model is stored, for a micro-batch of a streaming query, which is always a round.
            schema: The Arrow schema of an RDD, if known.

        Raises:
            ConfigError: Nothing that your function asks for has this name.
            DataError: The rows are none, or not as before.
            EmberflowError: The cluster is over: the error that ended it.
        """
        check_count("epochs", epochs)
        started = time.monotonic()
        self._state.check()
        fed = read_fed(self._spark, data, name, self._schemas, schema)
        is_round = isinstance(data, Mapping) or stored is not NOT_STORED
        kinds = ("rounds",) if is_round else ("stream", "rounds")
        kind, ranks = self._state.await_feed(kinds, name)
        if kind == "stream":
            rows = self._streams.train(fed, name, self._access_to(ranks), epochs)
        else:
            rows = self._rounds.train(fed, epochs, stored)
        return FeedResult(rows=rows, seconds=time.monotonic() - started)

    def warm_access(self) -> WarmAccess:
        """Return the processes of an idle cluster from which the nodes of a run are forked, once all are ready."""
        names = self._state.await_warm()
        nodes = {node.rank: node for node in self._access.nodes}
        starters = tuple(
            WarmStarter(name=name, host=node.host, jvm=node.jvm, devices=node.devices)
            for name, node in ((name, nodes[rank]) for rank, name in names.items())
        )
        return WarmAccess(starters=starters, key=warm_key(self._ranks_key))

    def infer(self, data: Any, schema: Any = None, name: str = "infer") -> Any:
        """Return a lazy DataFrame: the columns of `data`, and those of the results of your function.

        An RDD in is an RDD out: of the results only, one per row, in the order of the rows; a value where the results
        have one column, else a dict.

        Args:
            data: A DataFrame or an RDD.
            schema: The columns of the results, such as "score float"; None asks for the result of the first row.
            name: The requests' name.
        """
        self._state.check()
        # The RDDs of several calls need not have the same columns: nothing is kept of them.
        fed = read_fed(self._spark, {"data": data}, "data", {})
        _, ranks = self._state.await_feed(("requests",), name)
        tag = f"emberflow-{self._plan.run_id}-{self._plan.attempt}-infer-{next(self._numbers)}"
        access = self._access_to(ranks)
        if isinstance(fed, FedRdds):
            return inferred_rdd(fed, name, access, self._jobs, tag)
        return inferred_frame(data, schema, name, access, self._jobs, tag)

    def on_message(self, rank: int, message: Message) -> None:
        """Handle a node's message about its feeds; it does not block."""
        match message:
            case FeedOpened(kind, name):
                self._state.on_opened(rank, kind, name)
            case FeedClosed(kind, name, last):
                self._state.on_closed(rank, kind, name, last)
            case RoundDone(number):
                self._rounds.on_done(rank, number)
            case CommitAsked():
                self._streams.on_commit_asked(rank, message)
            case PartitionsTaken():
                self._streams.on_taken(message)
            case StopFeeding(name):
                self._streams.stop(name)

    def node_ended(self, rank: int) -> None:
        """Note that a node's function has returned, or that the run continues without this node."""
        self._state.on_ended(rank)

    @property
    def has_failed(self) -> bool:
        """Whether the attempt that these feeds belong to has failed."""
        return self._has_failed

    def fail(self, error: EmberflowError) -> None:
        """Have every call raise this error, those that wait and those to come: the cluster is over."""
        self._has_failed = True
        self._state.fail(error)
        self._jobs.cancel_later()

    def stopping(self) -> None:
        """Have the feeds of all nodes end after what was made visible; later calls raise an error."""
        self._state.stop(
            ClusterError(
                "The cluster must run while it is fed. Received: it was stopped.",
                fix="Feed it before cluster.stop, or start another one.",
            )
        )
        self._jobs.cancel_later()
        self._broadcast(FeedsEnd())

    def _access_to(self, ranks: Collection[int]) -> FeedAccess:
        nodes = tuple(node for node in self._access.nodes if node.rank in ranks)
        return dataclasses.replace(self._access, nodes=nodes)
