"""The ring of sockets, with threads for ranks: sums, gathers, and every way in which a peer can fail."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from emberflow.errors import PeerError
from emberflow.strategies.transport.ring import Ring
from tests.unit.rings import KEY, Counted, joined, on_all


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 5000, 300_001])
def test_sum_is_right_and_has_the_same_bits_on_all_ranks(ranks: int, size: int) -> None:
    given = [np.random.default_rng(rank).normal(size=size).astype(np.float32) for rank in range(ranks)]
    with joined(ranks) as rings:
        sums = on_all(rings, lambda ring: ring.sum_arrays([given[ring.rank]])[0])
    np.testing.assert_allclose(sums[0], np.sum(given, axis=0), rtol=1e-5, atol=1e-5)
    assert len({total.tobytes() for total in sums}) == 1


def test_sum_takes_types_and_shapes_mixed() -> None:
    def work(ring: Ring) -> list[Any]:
        one = ring.rank + 1
        return ring.sum_arrays(
            [
                np.full((2, 3), one, np.float32),
                np.array(one, np.int64),
                np.full((0, 4), one, np.float32),
                np.full((70_000,), one, np.float64),
                np.array([1 << 40], np.int64),
            ]
        )

    with joined(3) as rings:
        for sums in on_all(rings, work):
            np.testing.assert_array_equal(sums[0], np.full((2, 3), 6, np.float32))
            assert sums[1] == 6
            assert sums[2].shape == (0, 4)
            assert (sums[3] == 6).all()
            assert sums[4][0] == 3 << 40


def test_results_are_not_overwritten_while_somebody_holds_them() -> None:
    def work(ring: Ring) -> list[float]:
        held = [ring.sum_arrays([np.full(9000, step, np.float32)])[0] for step in range(4)]
        return [float(total[0]) for total in held]

    with joined(2) as rings:
        assert on_all(rings, work) == [[0, 2, 4, 6]] * 2


def test_memory_of_results_that_nobody_holds_is_used_again() -> None:
    def work(ring: Ring) -> list[int]:
        return [ring.sum_arrays([np.ones(100_000, np.float32)])[0].ctypes.data for _ in range(3)]

    with joined(2) as rings:
        assert all(len(set(places)) == 1 for places in on_all(rings, work))


def test_gather_takes_uneven_and_empty_arrays_in_rank_order() -> None:
    with joined(3) as rings:
        for pieces in on_all(rings, lambda ring: ring.all_gather(np.arange(ring.rank * 100_000))):
            assert [piece.size for piece in pieces] == [0, 100_000, 200_000]
            np.testing.assert_array_equal(pieces[2], np.arange(200_000))


def test_bytes_per_rank_do_not_grow_with_the_ranks() -> None:
    sent = {}
    for ranks in (2, 5):
        with joined(ranks) as rings:
            counted = [Counted(ring) for ring in rings]
            on_all(rings, lambda ring: ring.sum_arrays([np.ones(250_000, np.float32)]))
            sent[ranks] = max(count.bytes for count in counted)
    assert sent[5] < 1.7 * sent[2]  # 2 * (1 - 1/5) against 2 * (1 - 1/2)


def test_rounds_grow_with_the_logarithm_of_the_ranks() -> None:
    for ranks, rounds in ((2, 1), (3, 2), (5, 3), (8, 3)):
        with joined(ranks) as rings:
            counted = [Counted(ring) for ring in rings]
            on_all(rings, lambda ring: ring.sum_arrays([np.ones(3, np.float32)]))
            assert {each.frames for each in counted} == {rounds}
            on_all(rings, lambda ring: ring.sum_arrays([np.ones(30_000, np.float32)]))
            assert {each.frames for each in counted} == {3 * rounds}


@pytest.mark.alone
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_stuck_rank_is_named_by_all_others(ranks: int) -> None:
    stuck = ranks - 1
    with joined(ranks, receive_timeout=0.3) as rings:

        def work(ring: Ring) -> str:
            if ring.rank == stuck:
                return f"Rank {stuck} did not answer"
            with pytest.raises(PeerError) as caught:
                ring.sum_arrays([np.ones(200_000, np.float32)])
            return str(caught.value)

        start = time.monotonic()
        said = on_all(rings, work)
        assert time.monotonic() - start < 4
    assert all(text.startswith(f"Rank {stuck} ") for text in said), said


@pytest.mark.alone
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_dead_rank_is_named_by_all_others_at_once(ranks: int) -> None:
    dead = 1
    with joined(ranks, receive_timeout=30) as rings:

        def work(ring: Ring) -> str:
            if ring.rank == dead:
                for link in ring.peers.links:
                    link._left.close()
                    link._right.close()
                return f"Rank {dead} "
            with pytest.raises(PeerError) as caught:
                ring.sum_arrays([np.ones(50_000, np.float32)])
            with pytest.raises(PeerError):  # and ever after
                ring.sum_arrays([np.ones(1, np.float32)])
            return str(caught.value)

        start = time.monotonic()
        said = on_all(rings, work)
        assert time.monotonic() - start < 1
    assert all(text.startswith(f"Rank {dead} ") for text in said), said


def test_a_rank_that_finished_before_the_others_is_told_apart() -> None:
    with joined(2) as rings:

        def work(ring: Ring) -> str:
            ring.sum_arrays([np.ones(3)])
            if ring.rank == 0:
                ring.close()
                return ""
            with pytest.raises(PeerError) as caught:
                ring.sum_arrays([np.ones(3)])
            return str(caught.value)

        assert "Rank 0 has finished already" in on_all(rings, work)[1]


def test_closing_right_after_the_last_sum_harms_nobody() -> None:
    for _ in range(30):
        with joined(3) as rings:

            def work(ring: Ring) -> float:
                total = ring.sum_arrays([np.ones(100_000, np.float32)])[0][0]
                ring.close()
                return float(total)

            assert on_all(rings, work) == [3.0] * 3


@pytest.mark.fault
@pytest.mark.parametrize(("ours", "theirs"), [(10, 11), (100_000, 100_002), (10, 100_000)])
def test_other_sizes_are_an_error_and_not_a_wrong_sum(ours: int, theirs: int) -> None:
    with joined(2, receive_timeout=2) as rings:

        def work(ring: Ring) -> None:
            with pytest.raises(PeerError, match=r"another step, or has another model|failed"):
                ring.sum_arrays([np.ones(ours if ring.rank else theirs, np.float32)])

        on_all(rings, work)


@pytest.mark.alone
@pytest.mark.fault
def test_a_wrong_key_is_refused_at_once_and_others_still_join() -> None:
    listeners = [Ring.listen("127.0.0.1") for _ in range(2)]
    addresses = [listener.address for listener in listeners]
    intruder = Ring.listen("127.0.0.1")
    start = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(Ring.connect, listeners[0], rank=0, addresses=addresses, key=KEY, timeout=5)
        with pytest.raises(PeerError):
            Ring.connect(intruder, rank=1, addresses=addresses, key=b"x" * 32, timeout=5)
        assert time.monotonic() - start < 2
        second = pool.submit(Ring.connect, listeners[1], rank=1, addresses=addresses, key=KEY, timeout=5)
        rings = [first.result(), second.result()]
    assert on_all(rings, lambda ring: float(ring.sum_arrays([np.ones(1)])[0][0])) == [2.0, 2.0]
    for ring in rings:
        ring.close()


@pytest.mark.fault
def test_a_missing_rank_is_named_at_the_deadline() -> None:
    listener, absent = Ring.listen("127.0.0.1"), Ring.listen("127.0.0.1")
    with pytest.raises(PeerError) as caught:
        Ring.connect(listener, rank=0, addresses=[listener.address, absent.address], key=KEY, timeout=0.3)
    assert f"within 0.3 s. Received: missing={{1: {absent.address!r}}}" in caught.value.problem
    assert "join_timeout" in caught.value.fix
    absent.close()


def test_the_listener_is_closed_once_the_peers_are_connected() -> None:
    with joined(2):
        pass
    listener = Ring.listen("127.0.0.1")
    assert listener.sock.getsockname()[0] == "127.0.0.1"
    Ring.connect(listener, rank=0, addresses=[listener.address], key=KEY)
    host, port = listener.address.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


CHILD = """
import sys, numpy as np
from emberflow.strategies.transport.ring import Ring
listener = Ring.listen("127.0.0.1")
print(listener.address, flush=True)
key, *addresses = sys.stdin.readline().split()
ring = Ring.connect(listener, rank=1, addresses=addresses, key=bytes.fromhex(key))
for _ in range(3):
    ring.sum_arrays([np.ones(10_000, np.float32)])
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.alone
@pytest.mark.fault
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_and_a_stopped_process_are_errors_in_time(kill: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            listener = Ring.listen("127.0.0.1")
            addresses = [listener.address, child.stdout.readline().strip()]
            child.stdin.write(" ".join([KEY.hex(), *addresses]) + "\n")
            child.stdin.flush()
            ring = Ring.connect(listener, rank=0, addresses=addresses, key=KEY, receive_timeout=0.4)
            for _ in range(3):
                ring.sum_arrays([np.ones(10_000, np.float32)])
            assert child.stdout.readline() == "ready\n"
            start = time.monotonic()
            threading.Timer(0.1, os.kill, (child.pid, kill)).start()
            words = (
                "exited without reporting a result" if kill == signal.SIGKILL else "did not answer for 0.4 s"
            )
            with pytest.raises(PeerError, match=f"Rank 1 {words}"):
                ring.sum_arrays([np.ones(10_000, np.float32)])
            assert time.monotonic() - start < (0.5 if kill == signal.SIGKILL else 2.5)
        finally:
            child.kill()
