"""Ranks that share hosts: sums through shared memory, with threads and processes for ranks."""

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emberflow.errors import PeerError
from emberflow.strategies.transport import circles, host_memory, host_sum
from emberflow.strategies.transport.host_key import host_key
from emberflow.strategies.transport.interface import Array
from emberflow.strategies.transport.ring import Ring
from tests.unit.rings import KEY, Counted, joined, on_all

HOSTS = [["a", "a"], ["a", "a", "a"], ["a", "b", "a", "b"], ["a", "a", "b"], ["b", "a", "a", "a", "c"]]
PART = 1 << 18  # bytes, so that there are many parts
IN_MEMORY = host_sum.LEAST // 4  # float32 numbers from which on memory is used


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circles, "PART", PART)


@pytest.mark.parametrize("hosts", HOSTS, ids="".join)
@pytest.mark.parametrize("size", [3, IN_MEMORY, 300_001, 1_500_001])
def test_sum_is_right_and_has_the_same_bits_on_all_ranks(hosts: list[str], size: int) -> None:
    given = [np.random.default_rng(rank).normal(size=size).astype(np.float32) for rank in range(len(hosts))]
    with joined(len(hosts), hosts=hosts) as rings:
        for _ in range(2):  # the memory is used again
            sums = on_all(rings, lambda ring: ring.sum_arrays([given[ring.rank]])[0])
            np.testing.assert_allclose(sums[0], np.sum(given, axis=0), rtol=1e-5, atol=1e-5)
            assert len({total.tobytes() for total in sums}) == 1


@pytest.mark.parametrize("encrypt", [False, True])
def test_many_exchanges_in_a_row_are_not_mixed(encrypt: bool) -> None:
    def work(ring: Ring) -> list[float]:
        seen = []
        for step in range(40):
            size = IN_MEMORY + 11_000 * (step % 50)
            total = ring.sum_arrays([np.full(size, step + ring.rank, np.float32)])[0]
            seen += [float(total.min()), float(total.max())]
        return seen

    with joined(4, hosts=["a", "a", "b", "b"], encrypt=encrypt) as rings:
        expected = [4.0 * step + 6 for step in range(40) for _ in range(2)]
        assert on_all(rings, work) == [expected] * 4


def test_averages_in_buckets_go_through_memory_too() -> None:
    def work(ring: Ring) -> list[Array]:
        exchange = ring.bucket_exchange
        number = exchange.begin(np.array([ring.rank], np.float32), 2)
        for bucket in (1, 0):
            values = np.full((500, 900), np.nan if ring.rank == 0 else ring.rank + bucket, np.float64)
            exchange.submit(number, bucket, [values, values[0]])
        return [array for arrays in exchange.wait(number)[1] for array in arrays]

    with joined(3, hosts=["a"] * 3) as rings:
        for averages in on_all(rings, work):
            assert [array.shape for array in averages] == [(500, 900), (900,)] * 2
            assert [np.unique(array).round(5).tolist() for array in averages] == [[1.66667]] * 2 + [
                [2.66667]
            ] * 2


@pytest.mark.parametrize(("weights", "expected"), [((2.0, 1.0), 13.0), ((3.0, 0.0), 10.0), ((0.0, 0.0), 0.0)])
@pytest.mark.parametrize("sizes", [(150_000, 7, 100_001), (3, 65_600, 200_000)])
def test_weights_of_one_host_go_with_the_first_part(
    weights: tuple[float, ...], expected: float, sizes: tuple[int, ...]
) -> None:
    def work(ring: Ring) -> list[Array]:
        value = 10.0 + 9.0 * ring.rank if weights[ring.rank] else np.nan
        head = np.array([weights[ring.rank], 5.0], np.float32)
        return ring.average_arrays(head, [np.full(size, value, np.float32) for size in sizes])

    with joined(2, hosts=["a", "a"]) as rings:
        counted = [Counted(ring) for ring in rings]
        for totals, *averages in on_all(rings, work):
            assert totals.tolist() == [sum(weights), 10.0]
            assert [(len(array), np.unique(array).tolist()) for array in averages] == [
                (size, [expected]) for size in sizes
            ]
        assert {each.bytes for each in counted} == {0}  # not even the weights go over sockets


def test_large_numbers_of_one_host_are_not_sent() -> None:
    with joined(3, hosts=["a"] * 3) as rings:
        counted = [Counted(ring) for ring in rings]
        on_all(rings, lambda ring: ring.sum_arrays([np.ones(1_000_000, np.float32)]))
        assert {each.bytes for each in counted} == {0}


def test_only_one_rank_of_a_host_sends_to_other_hosts() -> None:
    with joined(4, hosts=["a", "a", "b", "b"]) as rings:
        counted = [Counted(ring) for ring in rings]
        on_all(rings, lambda ring: ring.sum_arrays([np.ones(1_000_000, np.float32)]))
        assert [each.bytes for each in counted] == [4_000_000, 0, 4_000_000, 0]


@pytest.mark.fault
def test_ranks_that_cannot_share_memory_use_sockets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(host_memory, "_open", lambda where, size: None)  # noqa: ARG005
    with joined(3, hosts=["a", "a", "b"]) as rings:
        counted = [Counted(ring) for ring in rings]
        sums = on_all(rings, lambda ring: ring.sum_arrays([np.ones(100_000, np.float32)])[0])
        assert all((total == 3).all() for total in sums)
        assert all(each.bytes for each in counted)
    assert "cannot share memory here" in caplog.text


def test_the_memory_is_returned_when_the_rings_are() -> None:
    def shared() -> list[str]:
        gc.collect()
        maps = Path("/proc/self/maps").read_text().splitlines()
        return [line for line in maps if "emberflow-ring" in line]

    with joined(2, hosts=["a", "a"]) as rings:
        assert len(shared()) >= 2
        rings.clear()
    assert shared() == []


@pytest.mark.alone
@pytest.mark.fault
@pytest.mark.parametrize("stuck", [0, 1, 3])
def test_a_stuck_rank_of_one_host_is_named_by_the_ranks_of_all_hosts(stuck: int) -> None:
    with joined(4, receive_timeout=0.4, hosts=["a", "b", "a", "b"]) as rings:

        def work(ring: Ring) -> str:
            if ring.rank == stuck:
                return f"Rank {stuck} "
            with pytest.raises(PeerError) as caught:
                ring.sum_arrays([np.ones(400_000, np.float32)])
            return str(caught.value)

        said = on_all(rings, work)
    assert all(text.startswith(f"Rank {stuck} ") for text in said), said


CHILD = """
import json, sys, numpy as np
from emberflow.strategies.transport import circles
from emberflow.strategies.transport.host_key import host_key
from emberflow.strategies.transport.ring import Ring
listener = Ring.listen("127.0.0.1")
print(json.dumps([listener.address, host_key()]), flush=True)
key, addresses, hosts, part = json.loads(sys.stdin.readline())
circles.PART = part
ring = Ring.connect(listener, rank=1, addresses=addresses, key=bytes.fromhex(key), hosts=hosts)
total = ring.sum_arrays([np.full(700_000, 2, np.float32)])[0]
print(json.dumps([float(total.min()), float(total.max())]), flush=True)
sys.stdin.readline()
"""


@pytest.mark.alone
@pytest.mark.fault
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGSTOP])
def test_processes_share_memory_and_one_that_is_killed_or_stopped_is_named(kill: signal.Signals) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def heard() -> Any:
            assert child.stdout is not None
            return json.loads(child.stdout.readline())

        try:
            listener = Ring.listen("127.0.0.1")
            address, host = heard()
            assert host == host_key()
            addresses, hosts = [listener.address, address], [host_key(), host]
            child.stdin.write(json.dumps([KEY.hex(), addresses, hosts, PART]) + "\n")
            child.stdin.flush()
            ring = Ring.connect(
                listener, rank=0, addresses=addresses, key=KEY, receive_timeout=0.4, hosts=hosts
            )
            counted = Counted(ring)
            total = ring.sum_arrays([np.full(700_000, 1, np.float32)])[0]
            assert (total == 3).all()
            assert heard() == [3.0, 3.0]
            assert counted.bytes == 0
            os.kill(child.pid, kill)
            with pytest.raises(PeerError, match="Rank 1 "):
                ring.sum_arrays([np.full(700_000, 1, np.float32)])
        finally:
            child.kill()
