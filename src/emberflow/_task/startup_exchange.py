"""The exchange of all ranks before your function begins: what each brings, and what all are told.

No rank is told everything that the others bring: of 1,000 ranks with a schema of 1,000 columns each that would be
gigabytes per rank. All are told every address, the rows and digest of every shard, and one schema and one set of
facts about columns in which all agree.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from emberflow._feed.shard_facts import ShardFacts
from emberflow._feed.shards import merge_briefs
from emberflow._protocol.driver_messages import Cluster, NoCluster, StartupFacts
from emberflow.errors import EmberflowError

STARTUP = "startup"


def startup_facts(endpoints: Mapping[str, str], shards: Mapping[str, ShardFacts]) -> StartupFacts:
    """Return what one rank brings: its addresses, its shards in brief, and what the briefs' digests stand for."""
    return StartupFacts(
        dict(endpoints),
        shards={name: list(facts.brief()) for name, facts in shards.items()},
        blobs={digest: blob for facts in shards.values() for digest, blob in facts.blobs().items()},
    )


def cluster_of(facts: Sequence[StartupFacts], blobs: Mapping[str, str] | None = None) -> Cluster | NoCluster:
    """Return what all ranks are told: the cluster, or why there can be none.

    Args:
        facts: What each rank brings.
        blobs: What the digests stand for; None: each rank has brought its own.
    """
    if blobs is None:
        blobs = {digest: blob for each in facts for digest, blob in each.blobs.items()}
    holders = [each for each in facts if each.shards]
    try:
        shards = {
            name: merge_briefs(name, [each.shards[name] for each in holders], blobs)
            for name in (holders[0].shards if holders else ())
        }
    except EmberflowError as error:
        return NoCluster(error.problem, error.fix)
    return Cluster([each.endpoints for each in facts], shards)


def without_blobs(facts: StartupFacts) -> StartupFacts:
    """Return what a rank brings, less its blobs."""
    return dataclasses.replace(facts, blobs={})


def blobs_to_show(rank: int, briefs: Sequence[StartupFacts], mine: StartupFacts) -> dict[str, str] | None:
    """Return the blobs that this rank must send to others: those of which it is the first holder.

    Args:
        rank: This rank.
        briefs: What all ranks bring, less their blobs.
        mine: What this rank brings, with its blobs.

    Returns:
        None where all ranks hold the same blobs, so that none has to be sent.
    """
    held = [_digests(each) for each in briefs]
    if all(each == held[rank] for each in held):
        return None
    before = set().union(*held[:rank])
    return {digest: blob for digest, blob in mine.blobs.items() if digest not in before}


def _digests(brief: StartupFacts) -> set[str]:
    return {digest for shard in brief.shards.values() for digest in shard[3:] if digest}
