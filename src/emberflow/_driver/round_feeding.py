"""Rounds seen from the driver: one feeding job, and then its rows become visible to all ranks at once."""

import dataclasses
import functools
import itertools
import json
import threading
from collections.abc import Callable

from emberflow._driver.fed_data import FedFrames, FedRdds
from emberflow._driver.feeding_job import FeedingJobs, refusal_error
from emberflow._driver.feeding_state import FeedingState
from emberflow._feed.shard_facts import ShardFacts
from emberflow._feed.shards import merge_briefs
from emberflow._plan.plan import RunPlan
from emberflow._protocol.codec import Message
from emberflow._protocol.live_messages import RoundDropped, RoundReady
from emberflow._task.feeding_task import RoundTask
from emberflow._task.node_dialing import FeedAccess
from emberflow.errors import ClusterError, DataError, NodeLostError


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundStorage:
    """Where the nodes find the model before a round of a stream, and store it after it.

    Attributes:
        resume_from: What they restore before they train; empty: they go on with what they have.
        store_to: Where the chief stores it afterwards; empty: nowhere, as in ``cluster.train``.
        exports: Whether a version is to be published of it, and the chief exports that too.
    """

    resume_from: str = ""
    store_to: str = ""
    exports: bool = False


NOT_STORED = RoundStorage()


class RoundFeeding:
    """All rounds of one cluster; calls of several threads take turns."""

    def __init__(
        self,
        plan: RunPlan,
        access: FeedAccess,
        state: FeedingState,
        jobs: FeedingJobs,
        send: Callable[[int, Message], None],
    ) -> None:
        self._plan = plan
        self._access = access
        self._state = state
        self._jobs = jobs
        self._send = send
        self._turn = threading.Lock()
        self._numbers = itertools.count()
        self._done: dict[int, set[int]] = {}

    def on_done(self, rank: int, number: int) -> None:
        """Note that a node is done with a round."""
        with self._state.changed:
            if number in self._done:
                self._done[number].add(rank)
            self._state.changed.notify_all()

    def train(self, data: FedFrames | FedRdds, epochs: int, stored: RoundStorage = NOT_STORED) -> int:
        """Bring the rows to all ranks, and return how many there are when all are done with them."""
        with self._turn:
            while True:
                left = self._state.trainers()
                try:
                    return self._train(data, epochs, stored)
                except NodeLostError:
                    # Nobody has seen a row of the round: the workers that are left get all of them.
                    if not self._plan.is_asynchronous or self._state.trainers() == left:
                        raise

    def _train(self, data: FedFrames | FedRdds, epochs: int, stored: RoundStorage) -> int:
        self._state.check()
        self._state.check_complete()
        number = next(self._numbers)
        left = self._state.trainers()
        nodes = tuple(node for node in self._access.nodes if node.rank in left)
        ranks = [node.rank for node in nodes]
        task = RoundTask(
            access=dataclasses.replace(self._access, nodes=nodes), number=number, names=data.names
        )
        try:
            tokens, facts = self._fed(data, task)
            shards = _merged(facts)
        except BaseException:
            for rank in ranks:
                self._send(rank, RoundDropped(number))
            raise
        with self._state.changed:
            done = self._done.setdefault(number, set())
        for place, rank in enumerate(ranks):
            where = dataclasses.asdict(stored)
            self._send(rank, RoundReady(number, epochs, tokens[place], shards, place, **where))
        try:
            self._state.wait_for_round(done, ranks, number)
        finally:
            del self._done[number]
        return sum(shard.rows for each in facts for shard in each.values())

    def _fed(
        self, data: FedFrames | FedRdds, task: RoundTask
    ) -> tuple[list[str], list[dict[str, ShardFacts]]]:
        """Run the feeding job; return the winning token of each rank, and the facts of its shards."""
        tag = f"emberflow-{self._plan.run_id}-{self._plan.attempt}-round-{task.number}"
        rows = {row["place"]: row for row in self._jobs.run(tag, functools.partial(data.feed_round, task))}
        for row in rows.values():
            if row["error"]:
                raise refusal_error(row["error"])
        if not rows:
            raise DataError(
                "The data must have at least one row. Received: none, so Spark started no task.",
                fix="Check the DataFrame's filters and joins (df.count() should be above 0).",
            )
        places = range(len(task.access.nodes))
        if missing := [task.access.nodes[place].rank for place in places if place not in rows]:
            raise ClusterError(
                f"Each rank must be given its rows. Received: none for rank {missing[0]} from Spark.",
                fix="Run it again; if it happens again, report it with the output of df.explain().",
            )
        facts = [json.loads(rows[place]["facts"]) for place in places]
        return [rows[place]["token"] for place in places], [
            {name: ShardFacts.from_json(text) for name, text in each.items()} for each in facts
        ]


def _merged(facts: list[dict[str, ShardFacts]]) -> dict[str, str]:
    """Return what all ranks are told about all shards, by name."""
    merged = {}
    for name in facts[0]:
        shards = [each[name] for each in facts]
        blobs = {digest: blob for shard in shards for digest, blob in shard.blobs().items()}
        merged[name] = merge_briefs(name, [shard.brief() for shard in shards], blobs)
    return merged
