"""Rounds seen from the driver: one feeding job, and then its rows become visible to all ranks at once."""

import functools
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

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
from emberflow.errors import ClusterError, DataError


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
            self._done.setdefault(number, set()).add(rank)
            self._state.changed.notify_all()

    def train(self, data: FedFrames | FedRdds, epochs: int) -> int:
        """Bring the rows to all ranks, and return how many there are when all are done with them."""
        with self._turn:
            self._state.check()
            number = next(self._numbers)
            ranks = self._state.trainers()
            try:
                tokens, facts = self._fed(data, number)
                shards = _merged(facts)
            except BaseException:
                self._tell(ranks, lambda _: RoundDropped(number))
                raise
            self._tell(ranks, lambda rank: RoundReady(number, epochs, tokens[rank], shards))
            with self._state.changed:
                done = self._done.setdefault(number, set())
            self._state.wait_for_nodes(done, ranks, f"round {number}")
            return sum(shard.rows for each in facts for shard in each.values())

    def _tell(self, ranks: tuple[int, ...], message: Callable[[int], Message]) -> None:
        for rank in ranks:
            self._send(rank, message(rank))

    def _fed(self, data: FedFrames | FedRdds, number: int) -> tuple[list[str], list[dict[str, ShardFacts]]]:
        """Run the feeding job; return the winning token of each rank, and the facts of its shards."""
        task = RoundTask(access=self._access, number=number, names=data.names)
        tag = f"emberflow-{self._plan.run_id}-{self._plan.attempt}-round-{number}"
        rows = self._jobs.run(tag, functools.partial(data.feed_round, task))
        by_rank: dict[int, Any] = {row["rank"]: row for row in rows}
        for row in by_rank.values():
            if row["error"]:
                raise refusal_error(row["error"])
        if not by_rank:
            raise DataError(
                "The data must have at least one row. Received: none, so Spark started no task.",
                fix="Check the DataFrame's filters and joins (df.count() should be above 0).",
            )
        missing = [node.rank for node in self._access.nodes if node.rank not in by_rank]
        if missing:
            raise ClusterError(
                f"Each rank must be given its rows. Received: none for rank {missing[0]} from Spark.",
                fix="Run it again; if it happens again, report it with the output of df.explain().",
            )
        facts = [
            {
                name: ShardFacts.from_json(text)
                for name, text in json.loads(by_rank[node.rank]["facts"]).items()
            }
            for node in self._access.nodes
        ]
        return [by_rank[node.rank]["token"] for node in self._access.nodes], facts


def _merged(facts: list[dict[str, ShardFacts]]) -> dict[str, str]:
    """Return what all ranks are told about all shards, by name."""
    merged = {}
    for name in facts[0]:
        shards = [each[name] for each in facts]
        blobs = {digest: blob for shard in shards for digest, blob in shard.blobs().items()}
        merged[name] = merge_briefs(name, [shard.brief() for shard in shards], blobs)
    return merged
