"""The node's side of the feed: what the task hands over becomes `Feed`."""

import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emberflow._feed.feed import Feed
    from emberflow._feed.stream import MostSteps


def receive_feed(
    sock: socket.socket,
    names: Sequence[str],
    shards: Mapping[str, str],
    rank: int,
    most_steps: "MostSteps | None",
) -> "Feed":
    """Take over the rows of this rank.

    Args:
        sock: The feed's own connection to the task.
        names: The data's names.
        shards: What is known of the shards of all ranks that train, by name.
        rank: This rank.
        most_steps: How streams agree on the steps of a window; None when all rows are spooled.
    """
    from emberflow._feed.dataset import Shard
    from emberflow._feed.feed import Feed
    from emberflow._feed.handover import receive_batches, receive_spool
    from emberflow._feed.shards import Shards
    from emberflow._feed.spool import Spool
    from emberflow._feed.stream import Stream

    facts = {name: Shards.from_json(shards[name]) for name in names}
    data: dict[str, Shard | Stream] = {}
    if most_steps is not None:
        (name,) = names
        batches = receive_batches(sock)
        data[name] = Stream(name=name, rank=rank, batches=batches, facts=facts[name], most_steps=most_steps)
        return Feed(data)
    for _ in names:
        name, file = receive_spool(sock)
        spool = Spool(file, name=name, schema=facts[name].schema)
        file.close()
        data[name] = Shard(name=name, rank=rank, spool=spool, facts=facts[name])
    return Feed(data)
