"""Spreads the rows of an RDD anew, for the next epoch."""

import random
from typing import Any


class RandomPartitioner:
    """A function for `RDD.partitionBy` that sends each row anywhere.

    Args:
        num_partition: The number of partitions.
    """

    def __init__(self, num_partition: int) -> None:
        self.num_partition = num_partition

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RandomPartitioner) and self.num_partition == other.num_partition

    def __hash__(self) -> int:
        return hash((RandomPartitioner, self.num_partition))

    def __call__(self, key: Any) -> int:  # noqa: ARG002 - what Spark passes
        """Return a partition for a row."""
        return random.randrange(self.num_partition)
