"""The meeting of all ranks before your function begins: what each brings, and what all are told.

Where many meet, nobody is told everything that everybody brought: 1,000 ranks with a schema of 1,000 columns each
would be gigabytes on every wire. All are told every address, the rows and digest of every shard, and one schema and
one set of facts about columns in which all agree.
"""

from collections.abc import Mapping, Sequence

from emberflow._feed.shard_facts import ShardFacts
from emberflow._feed.shards import merge_briefs
from emberflow._protocol.frames import Message
from emberflow.errors import EmberflowError

MEET = "meet"


def brought_by(endpoints: Mapping[str, str], shards: Mapping[str, ShardFacts]) -> Message:
    """Return what one rank brings: its addresses, its shards in brief, and what the briefs' digests stand for."""
    brought: Message = {"endpoints": dict(endpoints)}
    if shards:
        brought["shards"] = {name: list(facts.brief()) for name, facts in shards.items()}
        brought["blobs"] = {
            digest: blob for facts in shards.values() for digest, blob in facts.blobs().items()
        }
    return brought


def meeting_of(brought: Sequence[Message]) -> Message:
    """Return what all ranks are told, from what each of them brought: the cluster, or why there can be none."""
    told: Message = {"cluster": [each["endpoints"] for each in brought]}
    holders = [each for each in brought if "shards" in each]
    if not holders:
        return told
    blobs = {digest: blob for each in brought for digest, blob in each.get("blobs", {}).items()}
    try:
        told["shards"] = {
            name: merge_briefs(name, [each["shards"][name] for each in holders], blobs)
            for name in holders[0]["shards"]
        }
    except EmberflowError as error:
        return {"problem": error.problem, "fix": error.fix}
    return told


def without_blobs(brought: Message) -> Message:
    """Return what a rank brings, less its blobs."""
    return {name: value for name, value in brought.items() if name != "blobs"}


def blobs_to_bring(rank: int, briefs: Sequence[Message], mine: Message) -> dict[str, str] | None:
    """Return the blobs that this rank must show to others: those of which it is the first holder.

    Args:
        rank: This rank.
        briefs: What all ranks brought, less their blobs.
        mine: What this rank brought, with its blobs.

    Returns:
        None where all ranks hold the same blobs, so that nobody needs to show any.
    """
    held = [_digests(each) for each in briefs]
    if all(each == held[rank] for each in held):
        return None
    before = set().union(*held[:rank])
    return {digest: blob for digest, blob in mine.get("blobs", {}).items() if digest not in before}


def _digests(brief: Message) -> set[str]:
    return {digest for shard in brief.get("shards", {}).values() for digest in shard[3:] if digest}
