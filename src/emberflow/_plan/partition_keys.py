"""Keys that Spark's own hash partitioning sends to the partitions that we want.

``df.repartition(n, "key")`` puts a row into partition ``pmod(hash(key), n)``, by a Murmur3 hash that has been the
same in every Spark since 2.0. With one key for each partition, a row goes where we want it to.
"""

import functools

_MASK = 0xFFFFFFFF
_SEED = 42  # Spark's


@functools.lru_cache(maxsize=64)
def keys_of_partitions(partitions: int) -> tuple[int, ...]:
    """Return the smallest key for each partition, as values of Spark's type int.

    >>> keys_of_partitions(2)
    (2, 0)
    """
    keys: dict[int, int] = {}
    key = 0
    while len(keys) < partitions:
        keys.setdefault(spark_hash(key) % partitions, key)
        key += 1
    return tuple(keys[partition] for partition in range(partitions))


def spark_hash(value: int) -> int:
    """Return what Spark's `hash` gives for a value of type int; a long has another hash.

    >>> spark_hash(1)
    -559580957
    """
    mixed = _rotated(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    hashed = _rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _MASK
    hashed ^= 4  # the bytes of an int
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
