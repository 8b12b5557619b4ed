"""Averages in buckets, on the exchange thread of each rank: order, bits, weights, and failures in the middle."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from emberflow.errors import PeerError
from emberflow.strategies.transport.buckets import BUCKET_BYTES, ONE_BUCKET
from emberflow.strategies.transport.interface import Array
from emberflow.strategies.transport.ring import Ring
from tests.unit.rings import KEY, joined, on_all

BUCKETS = 6


def gradients(rank: int, size: int = 9000) -> list[list[Array]]:
    rng = np.random.default_rng(rank)
    return [
        [rng.normal(size=(size + each, 2)).astype(np.float32), np.ones(3, np.float32)]
        for each in range(BUCKETS)
    ]


def average(ring: Ring, rows: float, buckets: list[list[Array]], order: list[int]) -> Any:
    exchange = ring.bucket_exchange
    number = exchange.begin(np.array([rows, ring.rank], np.float32), len(buckets))
    for bucket in order:
        exchange.submit(number, bucket, buckets[bucket])
    return exchange.wait(number)


@pytest.mark.parametrize("ranks", [2, 3])
def test_buckets_may_be_submitted_in_any_order(ranks: int) -> None:
    rows = [3.0, 0.0, 5.0][:ranks]

    def work(ring: Ring) -> Any:
        order = random.Random(ring.rank).sample(range(BUCKETS), BUCKETS)
        return average(ring, rows[ring.rank], gradients(ring.rank), order)

    with joined(ranks) as rings:
        results = on_all(rings, work)
    for totals, _ in results:
        np.testing.assert_array_equal(totals, [sum(rows), sum(range(ranks))])
    for bucket in range(BUCKETS):
        expected = sum(rows[rank] * gradients(rank)[bucket][0] for rank in range(ranks)) / sum(rows)
        np.testing.assert_allclose(results[0][1][bucket][0], expected, rtol=1e-5, atol=1e-6)
        assert len({averages[bucket][0].tobytes() for _, averages in results}) == 1


def test_a_rank_without_rows_may_hold_anything_and_no_rows_at_all_give_zeros() -> None:
    def work(ring: Ring) -> list[float]:
        buckets = [[np.full(9000, np.nan if ring.rank else 2.0, np.float32)] for _ in range(2)]
        one_has_rows = average(ring, 1.0 - ring.rank, buckets, [1, 0])[1][1][0]
        none_has_rows = average(ring, 0.0, buckets, [1, 0])[1][1][0]
        return [*np.unique(one_has_rows), *np.unique(none_has_rows)]

    with joined(2) as rings:
        assert on_all(rings, work) == [[2.0, 0.0]] * 2


def test_one_bucket_is_averaged_by_one_exchange() -> None:
    def work(ring: Ring) -> list[Array]:
        head = np.array([1.0 + ring.rank, 7.0], np.float32)
        return ring.average_arrays(head, [np.full((2, 2), 3.0 * ring.rank), np.full(3, np.inf)])

    with joined(2) as rings:
        for totals, first, second in on_all(rings, work):
            np.testing.assert_array_equal(totals, np.array([3.0, 14.0], np.float32))
            np.testing.assert_array_equal(first, np.full((2, 2), 2.0))
            assert np.isinf(second).all()


@pytest.mark.parametrize("hosts", [(), ("one", "one")])
def test_one_large_bucket_is_divided_on_its_way(hosts: tuple[str, ...]) -> None:
    def work(ring: Ring) -> list[Array]:
        head = np.array([3.0 + 2 * ring.rank, 7.0], np.float32)
        return ring.average_arrays(head, [gradients(ring.rank, 200_000)[0][0]])

    with joined(2, hosts=hosts) as rings:
        results = on_all(rings, work)
    expected = sum((3 + 2 * rank) * gradients(rank, 200_000)[0][0] for rank in range(2)) / 8
    for totals, averages in results:
        np.testing.assert_array_equal(totals, np.array([8.0, 14.0], np.float32))
        np.testing.assert_allclose(averages, expected, rtol=1e-5, atol=1e-6)
    assert results[0][1].tobytes() == results[1][1].tobytes()


@pytest.mark.parametrize(
    ("hosts", "cores", "expected"),
    [
        (("one", "one"), 3, BUCKET_BYTES),
        (("one", "one"), 2, ONE_BUCKET),
        (("one", "one", "two"), 2, ONE_BUCKET),  # the only rank of host two has a core to spare
        (("one", "two"), 2, BUCKET_BYTES),
    ],
)
def test_gradients_go_at_once_where_a_host_has_no_core_to_spare(
    hosts: tuple[str, ...], cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    with joined(len(hosts), hosts=hosts) as rings:
        assert [ring.bucket_bytes for ring in rings] == [expected] * len(hosts)


def test_what_was_averaged_is_not_overwritten_while_somebody_holds_it() -> None:
    def work(ring: Ring) -> list[float]:
        held = []
        for step in range(4):
            buckets = [[np.full(20_000, step, np.float32)] for _ in range(2)]
            held.append(average(ring, 1.0, buckets, [0, 1])[1])
        return [float(averages[1][0][-1]) for averages in held]

    with joined(2) as rings:
        assert on_all(rings, work) == [[0, 1, 2, 3]] * 2


def test_sums_may_come_between_two_exchanges() -> None:
    def work(ring: Ring) -> list[float]:
        sums = []
        for step in range(3):
            average(ring, 1.0, gradients(ring.rank), list(range(BUCKETS)))
            sums.append(float(ring.sum_arrays([np.array([step])])[0][0]))
        return sums

    with joined(2) as rings:
        assert on_all(rings, work) == [[0, 2, 4]] * 2


@pytest.mark.fault
def test_a_straggler_in_the_middle_of_an_exchange_is_named() -> None:
    with joined(3, receive_timeout=0.3) as rings:

        def work(ring: Ring) -> str:
            number = ring.bucket_exchange.begin(np.ones(1, np.float32), BUCKETS)
            for bucket, arrays in enumerate(gradients(ring.rank)[: 2 if ring.rank == 2 else BUCKETS]):
                ring.bucket_exchange.submit(number, bucket, arrays)
            if ring.rank == 2:
                return "Rank 2 "
            with pytest.raises(PeerError) as caught:
                ring.bucket_exchange.wait(number)
            return str(caught.value)

        assert all(text.startswith("Rank 2 ") for text in on_all(rings, work))


@pytest.mark.fault
def test_a_step_that_failed_in_the_middle_cannot_be_continued_by_another() -> None:
    with joined(2) as rings:
        begun = threading.Barrier(2, timeout=5)

        def work(ring: Ring) -> str:
            exchange = ring.bucket_exchange
            number = exchange.begin(np.ones(1, np.float32), 2)
            exchange.submit(number, 0, [np.ones(9000, np.float32)])
            begun.wait()
            if ring.rank == 1:
                exchange.submit(number, 1, [np.ones(9000, np.float32)])
            with pytest.raises(PeerError) as caught:  # TensorFlow left the step of rank 0 before its end
                exchange.wait(number) if ring.rank == 1 else exchange.begin(np.ones(1, np.float32), 2)
            return str(caught.value)

        first, second = on_all(rings, work)
    assert first.startswith("Rank 0 did not end its last step")
    assert second.startswith("Rank 0 ")


def test_closing_in_the_middle_ends_the_thread() -> None:
    with joined(2) as rings:
        for ring in rings:
            number = ring.bucket_exchange.begin(np.ones(1, np.float32), 2)
            if ring.rank == 0:  # its thread waits for rank 1, whose thread waits for a bucket
                ring.bucket_exchange.submit(number, 0, [np.ones(90_000, np.float32)])
        threads = [thread for thread in threading.enumerate() if thread.name == "emberflow-exchange"]
        assert len(threads) == 2
        for ring in rings:
            ring.close()
        assert not any(thread.is_alive() for thread in threads)


CHILD = """
import sys, numpy as np
from emberflow.strategies.transport.ring import Ring
listener = Ring.listen("127.0.0.1")
print(listener.address, flush=True)
key, *addresses = sys.stdin.readline().split()
ring = Ring.connect(listener, rank=1, addresses=addresses, key=bytes.fromhex(key))
number = ring.bucket_exchange.begin(np.ones(1, np.float32), 3)
ring.bucket_exchange.submit(number, 0, [np.ones(90_000, np.float32)])
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.alone
@pytest.mark.fault
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_killed_or_stopped_in_the_middle_is_named(kill: signal.Signals) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            listener = Ring.listen("127.0.0.1")
            addresses = [listener.address, child.stdout.readline().strip()]
            child.stdin.write(" ".join([KEY.hex(), *addresses]) + "\n")
            child.stdin.flush()
            ring = Ring.connect(listener, rank=0, addresses=addresses, key=KEY, receive_timeout=0.4)
            number = ring.bucket_exchange.begin(np.ones(1, np.float32), 3)
            for bucket in range(3):
                ring.bucket_exchange.submit(number, bucket, [np.ones(90_000, np.float32)])
            assert child.stdout.readline() == "ready\n"
            os.kill(child.pid, kill)
            start = time.monotonic()
            with pytest.raises(PeerError, match="Rank 1 "):
                ring.bucket_exchange.wait(number)
            assert time.monotonic() - start < 2.5
            ring.close()
        finally:
            child.kill()
