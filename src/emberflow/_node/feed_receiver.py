"""The node's side of the feed: what the task hands over becomes `Feed`."""

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emberflow._feed.feed import Feed
    from emberflow._feed.stream import MostSteps


def receive_feed(
    sock: socket.socket, names: Sequence[str], shards: Mapping[str, str], rank: int, ask: "MostSteps | None"
) -> "Feed":
    """Take over the rows of this rank.

    Args:
        sock: The feed's own wire to the task.
        names: The data's names.
        shards: What is known of the shards of all ranks that train, by name.
        rank: This rank.
        ask: How streams agree on the steps of a window; None when all rows are spooled.
    """
    from emberflow._feed.dataset import Shard
    from emberflow._feed.feed import Feed
    from emberflow._feed.handover import receive_batches, receive_spool
    from emberflow._feed.shards import Shards
    from emberflow._feed.spool import Spool
    from emberflow._feed.stream import Stream

    facts = {name: Shards.from_json(shards[name]) for name in names}
    data: dict[str, Shard | Stream] = {}
    if ask is not None:
        (name,) = names
        batches = receive_batches(sock)
        data[name] = Stream(name=name, rank=rank, batches=batches, facts=facts[name], most_steps=ask)
        return Feed(data)
    for _ in names:
        name, file = receive_spool(sock)
        spool = Spool(file, schema=facts[name].schema)
        file.close()
        data[name] = Shard(name=name, rank=rank, spool=spool, facts=facts[name])
    return Feed(data)


def asker(ask: Callable[[dict[str, Any]], dict[str, Any]]) -> "MostSteps":
    """Return how a stream asks all ranks, through its task, for the most steps that any can fill."""

    def most_steps(mine: int) -> int:
        return int(ask({"most": mine})["most"])

    return most_steps
