"""The node's side of the feed: what the task hands over becomes `Feed`."""

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emberflow._feed.feed import Feed
    from emberflow._feed.stream import MostSteps

Shards = dict[str, str]


def receive_feed(
    sock: socket.socket, names: Sequence[str], shards: Sequence[Shards], rank: int, ask: "MostSteps | None"
) -> "Feed":
    """Take over the rows of this rank.

    Args:
        sock: The feed's own wire to the task.
        names: The data's names.
        shards: What each rank that trains said of its shards, in rank order.
        rank: This rank.
        ask: How streams agree on the steps of a window; None when all rows are spooled.
    """
    from emberflow._feed.dataset import Shard
    from emberflow._feed.facts import ShardFacts, agreed_schema
    from emberflow._feed.feed import Feed
    from emberflow._feed.handover import receive_batches, receive_spool
    from emberflow._feed.spool import Spool
    from emberflow._feed.stream import Stream

    facts = {name: tuple(ShardFacts.from_json(each[name]) for each in shards) for name in names}
    data: dict[str, Shard | Stream] = {}
    if ask is not None:
        (name,) = names
        batches = receive_batches(sock)
        data[name] = Stream(name=name, rank=rank, batches=batches, facts=facts[name], most_steps=ask)
        return Feed(data)
    for _ in names:
        name, file = receive_spool(sock)
        spool = Spool(file, schema=agreed_schema(facts[name]))
        file.close()
        data[name] = Shard(name=name, rank=rank, spool=spool, facts=facts[name])
    return Feed(data)


def asker(ask: Callable[[dict[str, Any]], dict[str, Any]]) -> "MostSteps":
    """Return how a stream asks all ranks, through its task, for the most steps that any can fill."""

    def most_steps(mine: int) -> int:
        return int(ask({"most": mine})["most"])

    return most_steps
