"""One rank of `benchmarks.allreduce_mpi`: ``python allreduce_sums.py SIDE FLOATS TIMES [RANK]``.

It runs in two environments, so each side imports its own library. The last number on the first rank's standard output
is milliseconds per sum.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

WARM_UP = 3


def by_mpi() -> tuple[Callable[[Any], object], int, int]:
    """Return the sum over all ranks in place, our rank, and how many there are."""
    from mpi4py import MPI  # type: ignore[import-not-found]

    world = MPI.COMM_WORLD
    return lambda array: world.Allreduce(MPI.IN_PLACE, array), world.Get_rank(), world.Get_size()


def by_ring(rank: int, *, encrypt: bool) -> tuple[Callable[[Any], object], int, int]:
    """Return the same by our ring: say our address, hear the others'."""
    from emberflow.strategies.transport.host_key import host_key
    from emberflow.strategies.transport.ring import Ring

    listener = Ring.listen("127.0.0.1")
    print(listener.address, flush=True)
    key, *addresses = sys.stdin.readline().split()
    hosts = () if encrypt else [host_key()] * len(addresses)  # encrypted sockets are for ranks of other hosts
    ring = Ring.connect(
        listener, rank=rank, addresses=addresses, key=bytes.fromhex(key), encrypt=encrypt, hosts=hosts
    )
    return lambda array: np.copyto(array, ring.sum_arrays([array])[0]), rank, len(addresses)


def main() -> None:
    side, floats, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if side == "mpi":
        add, rank, ranks = by_mpi()
    else:
        add, rank, ranks = by_ring(int(sys.argv[4]), encrypt=side == "ring_encrypted")
    array = np.full(floats, rank + 1, np.float32)
    add(array)
    assert array[0] == array[-1] == ranks * (ranks + 1) / 2
    array[:] = 0
    for _ in range(WARM_UP):
        add(array)
    started = time.perf_counter()
    for _ in range(times):
        add(array)
    if rank == 0:
        print((time.perf_counter() - started) * 1000 / times, flush=True)


if __name__ == "__main__":
    main()
