"""Who sends which blocks to whom: sums and gathers over any number of members in few rounds. Pure functions.

In a round of distance d each member sends to the member d places to its right, and receives from the one d places to
its left; distances are powers of two, so there are log2(members) rounds. A vector is divided into one block for each.
A reduce-scatter starts with all blocks and halves what a member holds in each round; an all-gather doubles it.
Either sends (members - 1) / members of the vector, as in a ring, which takes members - 1 rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one member does in one round.

    Attributes:
        link: The place of its distance: the distance is ``2 ** link``.
        sent: The blocks that it sends to the right.
        received: The blocks that come from the left.
    """

    link: int
    sent: tuple[int, ...]
    received: tuple[int, ...]


def distances(members: int) -> list[int]:
    """Return the distances of all rounds.

    >>> distances(1), distances(2), distances(5)
    ([], [1], [1, 2, 4])
    """
    return [1 << place for place in range((members - 1).bit_length())]


@lru_cache
def reduce_rounds(member: int, members: int) -> tuple[Round, ...]:
    """Return the rounds of a reduce-scatter: received blocks are added, and at the end ``member`` has its own sum.

    >>> [(each.sent, each.received) for each in reduce_rounds(0, 3)]
    [((2,), (0,)), ((1,), (0,))]
    """
    rounds = []
    for link, distance in reversed(list(enumerate(distances(members)))):
        count = min(2 * distance, members) - distance
        sent = tuple((member + distance + place) % members for place in range(count))
        received = tuple((member + place) % members for place in range(count))
        rounds.append(Round(link=link, sent=sent, received=received))
    return tuple(rounds)


@lru_cache
def gather_rounds(member: int, members: int) -> tuple[Round, ...]:
    """Return the rounds of an all-gather: ``member`` starts with its own block, and has all at the end.

    >>> [(each.sent, each.received) for each in gather_rounds(0, 3)]
    [((0,), (2,)), ((0,), (1,))]
    """
    rounds = []
    for link, distance in enumerate(distances(members)):
        count = min(distance, members - distance)
        sent = tuple((member - place) % members for place in range(count))
        received = tuple((member - distance - place) % members for place in range(count))
        rounds.append(Round(link=link, sent=sent, received=received))
    return tuple(rounds)


def spans(blocks: Sequence[int], starts: Sequence[int]) -> list[tuple[int, int]]:
    """Return where blocks are in a vector: as few ranges as possible, empty ones left out.

    Args:
        blocks: Numbers of blocks.
        starts: Where each block begins, and where the last one ends.

    >>> spans((4, 0, 1), [0, 2, 4, 6, 8, 10])
    [(0, 4), (8, 10)]
    """
    ranges: list[tuple[int, int]] = []
    for block in sorted(blocks):
        begin, end = starts[block], starts[block + 1]
        if ranges and ranges[-1][1] == begin:
            ranges[-1] = (ranges[-1][0], end)
        elif begin < end:
            ranges.append((begin, end))
    return ranges
