"""The steps of an epoch, the rows of each step, and their order. Pure functions."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from emberflow.config import is_count
from emberflow.errors import ConfigError, DataError

Order = NDArray[np.int64]


def batch_shares(
    ranks: int, *, batch_size: int | None = None, global_batch_size: int | None = None
) -> tuple[int, ...]:
    """Return the batch size of each rank; pass exactly one of the two sizes.

    `batch_size` is per worker. `global_batch_size` is cut into shares that differ by at most one row.

    >>> batch_shares(3, batch_size=32), batch_shares(3, global_batch_size=100)
    ((32, 32, 32), (34, 33, 33))
    """
    size = batch_size if global_batch_size is None else global_batch_size
    if (batch_size is None) == (global_batch_size is None):
        raise ConfigError(
            "Exactly one of `batch_size` and `global_batch_size` is needed. "
            f"Received: batch_size={batch_size!r}, global_batch_size={global_batch_size!r}.",
            fix="Pass batch_size=32: the rows in one step of one worker.",
        )
    least = 1 if global_batch_size is None else ranks
    if not is_count(size, least):
        name = "batch_size" if global_batch_size is None else "global_batch_size"
        raise ConfigError(
            f"`{name}` must be a whole number, {least} or more with {ranks} workers. "
            f"Received: {name}={size!r}.",
            fix=f"Pass {name}={max(32, least)}.",
        )
    if global_batch_size is None:
        return (size,) * ranks
    return tuple(size // ranks + (rank < size % ranks) for rank in range(ranks))


def common_steps(rows_per_rank: Sequence[int], batch_sizes: int | Sequence[int]) -> int:
    """Return the steps that every rank takes in one epoch.

    All ranks take the same number: a rank that stops early leaves the others waiting in the
    all-reduce forever.

    >>> common_steps([100, 93, 95], 10), common_steps([0, 21], [10, 10])
    (10, 3)
    """
    sizes = [batch_sizes] * len(rows_per_rank) if isinstance(batch_sizes, int) else batch_sizes
    steps = max((-(-rows // size) for rows, size in zip(rows_per_rank, sizes, strict=True)), default=0)
    if steps == 0:
        raise DataError(
            f"At least one row is needed. Received: 0 rows over {len(rows_per_rank)} workers.",
            fix="Check the DataFrame's filters and joins: df.count() should be above 0.",
        )
    return steps


def batch_rows(rows: int, steps: int, step: int) -> range:
    """Return the rows of one step: each row in exactly one step, sizes at most one apart.

    >>> [len(batch_rows(93, 10, step)) for step in range(10)]
    [9, 9, 9, 10, 9, 9, 10, 9, 9, 10]
    """
    return range(step * rows // steps, (step + 1) * rows // steps)


def batch_bounds(rows: int, steps: int, first: int, last: int) -> Order:
    """Return where the steps `first` to `last` (excluded) begin, and where the last of them ends.

    >>> batch_bounds(93, 10, 2, 5).tolist()
    [18, 27, 37, 46]
    """
    # Python's integers do not overflow: steps * rows can pass 2**63.
    return np.array([step * rows // steps for step in range(first, last + 1)], dtype=np.int64)


def epoch_order(rows: int, *, seed: int, epoch: int, rank: int) -> Order:
    """Return the order of an epoch: a permutation of the shard's canonical rows.

    The same for the same four numbers, in any process; another order for any other epoch or rank.

    >>> sorted(epoch_order(5, seed=7, epoch=0, rank=0).tolist())
    [0, 1, 2, 3, 4]
    """
    bits = np.random.PCG64(np.random.SeedSequence((seed, epoch, rank)))
    return np.random.Generator(bits).permutation(rows)


def balanced_ranges(sizes: Sequence[int], ranks: int) -> tuple[tuple[tuple[int, int, int], ...], ...]:
    """Cut pieces of the given sizes into `ranks` runs of equal length (plus or minus one row).

    Returns for each rank its ranges ``(piece, start, stop)``, in order: every row is in exactly one.

    >>> balanced_ranges([10, 3], 2)
    (((0, 0, 7),), ((0, 7, 10), (1, 0, 3)))
    """
    ends = list(accumulate(sizes, initial=0))
    total = ends[-1]
    cuts = [-(-rank * total // ranks) for rank in range(ranks + 1)]
    return tuple(
        tuple(
            (piece, max(start, ends[piece]) - ends[piece], min(stop, ends[piece + 1]) - ends[piece])
            for piece in range(len(sizes))
            if max(start, ends[piece]) < min(stop, ends[piece + 1])
        )
        for start, stop in pairwise(cuts)
    )


def balanced_assignment(sizes: Sequence[int], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Assign pieces to ranks: the largest piece first, each to the rank with the smallest load; sorted within a rank.

    >>> balanced_assignment([5, 9, 4], 2)
    ((1,), (0, 2))
    """
    held: list[list[int]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    for piece in sorted(range(len(sizes)), key=lambda piece: (-sizes[piece], piece)):
        rank = min(range(ranks), key=lambda rank: (load[rank], len(held[rank]), rank))
        held[rank].append(piece)
        load[rank] += sizes[piece]
    return tuple(tuple(sorted(pieces)) for pieces in held)
