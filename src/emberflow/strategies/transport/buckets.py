"""Which gradients are exchanged together: buckets of about one size, in the order of backpropagation."""

import sys
from collections.abc import Sequence

BUCKET_BYTES = 1 << 20  # smaller ones start earlier, and each costs two rounds of all ranks
ONE_BUCKET = sys.maxsize


def divide_into_buckets(tensors: Sequence[tuple[str, int]], limit: int = BUCKET_BYTES) -> list[list[int]]:
    """Return the places of the tensors of each bucket, the last tensors first.

    Backpropagation comes to the last layers first. A bucket holds tensors of one type, and is full when it has
    `limit` bytes or more: a layer's small vectors go with its matrix.

    Args:
        tensors: Type and bytes of each tensor.
        limit: Bytes from which on a bucket is full.

    >>> divide_into_buckets([("float32", 9), ("float32", 8), ("float32", 5), ("float64", 1)], limit=9)
    [[3], [2, 1], [0]]
    """
    buckets: list[list[int]] = []
    held = 0
    for place in reversed(range(len(tensors))):
        dtype, size = tensors[place]
        fits = buckets and held < limit and tensors[buckets[-1][-1]][0] == dtype
        if not fits:
            buckets.append([])
            held = 0
        buckets[-1].append(place)
        held += size
    return buckets
