"""Periodic averaging without TensorFlow: the rules, the server, what is repeated, lost, late or not invited."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow.errors import ConfigError, PeerError
from emberflow.strategies.periodic.client import PeriodicClient
from emberflow.strategies.periodic.combiners import check_combiner, rule_of
from emberflow.strategies.periodic.server import PeriodicServer
from emberflow.strategies.periodic.value_layout import VariableSpec, layouts_of

KEY = b"k" * 32
START = 10.0


@contextmanager
def servers(
    count: int = 1, workers: int = 2, join_timeout: float = 5.0, exchange_timeout: float = 5.0
) -> Iterator[list[Any]]:
    """Serve on loopback; yield pairs of server and address."""
    made = []
    for index in range(count):
        listener = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        server = PeriodicServer(
            listener,
            index=index,
            workers=workers,
            key=KEY,
            join_timeout=join_timeout,
            exchange_timeout=exchange_timeout,
        )
        made.append((server.start(), address))
    try:
        yield made
    finally:
        for server, _ in made:
            server.close()


def join(
    made: Sequence[Any], rank: int, values: Sequence[Any], combiner: Any = "delta", **options: Any
) -> tuple[PeriodicClient, list[Any]]:
    client = PeriodicClient([address for _, address in made], key=KEY, rank=rank, **options)
    rule = rule_of(combiner, is_statistic=False)
    specs = [VariableSpec(size=value.size, dtype=str(value.dtype), rule=rule) for value in values]
    return client, client.open(specs, values, combiner)


def array(*values: float) -> Any:
    return np.array(values, np.float64)


class ByHand:
    """What the server's value must be, one variable with one value, by the definition of each rule."""

    def __init__(self, rule: str, workers: int) -> None:
        self.rule, self.workers, self.value = rule, workers, START
        self.pulled = dict.fromkeys(range(workers), START)
        self.versions = dict.fromkeys(range(workers), 0)
        self.version = 0

    def push(self, rank: int, trained: float) -> tuple[float, int]:
        """Return the server's value after this worker has added `trained` to what it pulled, and the staleness."""
        mine = self.pulled[rank] + trained
        if self.rule == "delta":
            self.value = self.value + trained
        else:
            self.value = ((self.workers - 1) * self.value + mine) / self.workers
        stale = self.version - self.versions[rank]
        self.version += 1
        self.pulled[rank], self.versions[rank] = self.value, self.version
        return self.value, stale


@settings(max_examples=40, deadline=None)
@given(
    rule=st.sampled_from(["mean", "delta"]),
    workers=st.sampled_from([2, 3]),
    pushes=st.lists(st.tuples(st.integers(0, 2), st.integers(-8, 8)), max_size=25),
)
def test_any_order_of_pushes_gives_what_the_rule_says(
    rule: str, workers: int, pushes: list[tuple[int, int]]
) -> None:
    expected = ByHand(rule, workers)
    with servers(workers=workers) as made:
        clients = [join(made, rank, [array(START)], rule)[0] for rank in range(workers)]
        mine = dict.fromkeys(range(workers), START)
        for who, trained in pushes:
            rank = who % workers
            (values,), came = clients[rank].exchange([array(mine[rank] + trained)])
            mine[rank] = float(values[0])
            value, stale = expected.push(rank, trained)
            assert values[0] == pytest.approx(value, abs=1e-9)
            assert (came.stale, came.counted) == (stale, True)
        report = made[0][0].report()
        assert sum(report["pushes"].values()) == len(pushes)
        for client in clients:
            client.close()


def test_a_function_is_told_who_pushes_which_variable() -> None:
    def combine(server: Any, pushed: Any, pulled: Any, *, rank: int, variable: int) -> Any:
        return server + 100 * rank + variable

    with servers() as made:
        clients = [join(made, rank, [array(0.0), array(0.0)], combine)[0] for rank in range(2)]
        first, _ = clients[0].exchange([array(1.0), array(1.0)])
        second, _ = clients[1].exchange([array(1.0), array(1.0)])
        assert [float(value[0]) for value in [*first, *second]] == [0.0, 1.0, 100.0, 102.0]
        for client in clients:
            client.close()


def test_two_workers_that_add_one_each_step_add_up() -> None:
    """Twelve pushes from 10 make 22. Deltas against the last push, not the last pull, would make 318."""
    with servers() as made:
        clients = [join(made, rank, [array(START)])[0] for rank in range(2)]
        mine = [START, START]
        for _ in range(6):
            for rank in range(2):
                (values,), _ = clients[rank].exchange([array(mine[rank] + 1.0)])
                mine[rank] = float(values[0])
        assert mine[1] == START + 12
        assert made[0][0].report()["overlapping"] == 11  # all but the first


def test_values_are_split_evenly_over_servers_and_come_back_whole() -> None:
    rng = np.random.default_rng(0)
    values = [
        rng.normal(size=size).astype(kind)
        for size, kind in ((7, "float32"), (500, "float64"), (1, "float16"))
    ]
    specs = [VariableSpec(size=value.size, dtype=str(value.dtype), rule="delta") for value in values]
    sizes = [sum(piece.size for piece in layout.pieces) for layout in layouts_of(specs, 3)]
    assert max(sizes) - min(sizes) <= 1
    with servers(3) as made:
        client, pulled = join(made, 0, values)
        other, same = join(made, 1, [np.zeros_like(value) for value in values])
        for value, mine, theirs in zip(values, pulled, same, strict=True):
            assert mine.tobytes() == theirs.tobytes() == value.tobytes()
        (first, *_), _ = other.exchange([value + 1 for value in same])
        assert np.allclose(first, values[0] + 1)
        client.close()
        other.close()


def test_a_function_of_yours_combines() -> None:
    with servers(2) as made:
        client, _ = join(
            made, 0, [array(1, 2, 3)], lambda server, pushed, pulled: server + 2 * (pushed - pulled)
        )
        (values,), _ = client.exchange([array(2, 2, 4)])
        assert values.tolist() == [3, 2, 5]
        client.close()


@pytest.mark.fault
@pytest.mark.parametrize("kind", [TypeError, ValueError, KeyError, OSError, SystemExit, ConfigError])
def test_a_combiner_that_fails_is_told_at_once_and_none_of_its_push_is_kept(
    kind: type[BaseException],
) -> None:
    """The combiner spoils its arguments, and raises on the second of two variables."""

    def combiner(server: Any, pushed: Any, pulled: Any) -> Any:
        if server.size == 1:
            raise kind("no", "way") if kind is ConfigError else kind("no way")
        server += pushed - pulled
        return server

    values = [array(START, START), array(START)]
    with servers() as made:
        client, _ = join(made, 0, values, combiner)
        server = made[0][0]
        with pytest.raises(PeerError) as caught:
            client.exchange([value + 1 for value in values])
        assert f"Your combiner raised {kind.__name__}" in caught.value.problem
        assert "in combiner" in caught.value.problem  # its own traceback
        assert type(server.failure) is kind
        assert server.report()["pushes"] == {}
        other, pulled = join(made, 1, values, combiner)
        assert [each.tolist() for each in pulled] == [each.tolist() for each in values]
        client.close()
        other.close()


def test_a_combiner_that_cannot_be_loaded_is_told_at_once() -> None:
    class Broken:
        def __reduce__(self) -> Any:
            return int, ("not a number",)

        def __call__(self, *_: Any) -> Any:
            raise NotImplementedError

    with servers() as made:
        with pytest.raises(PeerError, match="Your combiner raised ValueError"):
            join(made, 0, [array(START)], Broken())
        assert isinstance(made[0][0].failure, ValueError)


@pytest.mark.fault
def test_a_push_whose_answer_was_lost_counts_once() -> None:
    with servers() as made:
        client, _ = join(made, 0, [array(START)])
        server = client._servers[0]
        assert server.connection is not None
        answer = server.answer
        dropped = []

        def fail_once(wait: float) -> Any:
            if not dropped:
                dropped.append(answer(wait))  # the server has applied it; we act as if its answer never came
                raise ConnectionResetError
            return answer(wait)

        server.answer = fail_once  # type: ignore[method-assign]
        (values,), came = client.exchange([array(START + 1)])
        assert values.tolist() == [START + 1]
        assert not came.counted
        assert made[0][0].report()["repeated"] == 1
        (values,), came = client.exchange([array(START + 2)])
        assert (values.tolist(), came.counted) == ([START + 2], True)
        client.close()


def test_a_task_that_is_tried_again_does_not_apply_its_updates_twice() -> None:
    with servers() as made:
        chief, _ = join(made, 0, [array(START)])
        first, (value,) = join(made, 1, [array(0.0)])
        for _ in range(3):
            (value,), _ = first.exchange([value + 1])
        again, (value,) = join(made, 1, [array(0.0)], attempt=1)
        counted = []
        for _ in range(5):
            (value,), came = again.exchange([value + 1])
            counted.append(came.counted)
        assert counted == [False, False, False, True, True]
        assert value.tolist() == [START + 5]
        with pytest.raises(PeerError):  # the first try comes back from the dead
            first.exchange([array(99.0)])
        (value,), _ = chief.pull([array(0.0)])
        assert value.tolist() == [START + 5]
        for client in (chief, first, again):
            client.close()


def test_a_pull_in_between_changes_nothing_for_the_next_push() -> None:
    with servers() as made:
        chief, _ = join(made, 0, [array(START)])
        other, _ = join(made, 1, [array(0.0)])
        other.exchange([array(START + 5)], place={"epoch": 2})
        (value,), places = chief.pull([array(0.0)])
        assert (value.tolist(), places) == ([START + 5], {"1": {"epoch": 2}})
        (values,), came = chief.exchange([array(START + 1)])  # against START, which it trained from
        assert (values.tolist(), came.stale) == ([START + 6], 1)
        chief.close()
        other.close()


def test_the_chief_gets_what_all_have_pushed_though_some_are_slow_and_some_are_lost() -> None:
    with servers(workers=3) as made, ThreadPoolExecutor(1) as pool:
        chief, _ = join(made, 0, [array(START)])
        slow, (value,) = join(made, 1, [array(0.0)])
        dying, _ = join(made, 2, [array(0.0)])
        chief.exchange([array(START + 1)])
        final = pool.submit(chief.finish, [array(0.0)])
        slow.exchange([value + 10])
        dying.close()  # without a message
        assert not final.done()
        slow.exchange([array(START + 21)])
        slow.leave()
        (values,), missing = final.result(timeout=5)
        assert values.tolist() == [START + 21]
        assert missing == [2]
        chief.leave()


def test_a_worker_that_is_known_to_be_lost_is_not_waited_for() -> None:
    with servers(workers=2, join_timeout=60.0) as made, ThreadPoolExecutor(1) as pool:
        chief, _ = join(made, 0, [array(START)])
        final = pool.submit(chief.finish, [array(0.0)])
        made[0][0].values.mark_lost(1)
        assert final.result(timeout=5)[1] == [1]
        chief.close()


def test_a_worker_that_has_nothing_to_do_is_not_waited_for() -> None:
    with servers(2, workers=2, join_timeout=60.0) as made, ThreadPoolExecutor(1) as pool:
        chief, _ = join(made, 0, [array(START)])
        final = pool.submit(chief.finish, [array(0.0)])
        PeriodicClient([address for _, address in made], key=KEY, rank=1).decline()
        assert final.result(timeout=5)[1] == []
        assert made[0][0].report()["pushes"] == {}
        chief.leave()


@pytest.mark.fault
def test_nobody_is_held_up_by_a_worker_that_sends_slowly() -> None:
    with servers() as made:
        chief, (value,) = join(made, 0, [np.zeros(1 << 18)])
        slow, _ = join(made, 1, [np.zeros(1 << 18)])
        connection = slow._servers[0].connection
        assert connection is not None
        connection._sock.sendall(bytes(16)[:8])  # half a header, and then nothing
        started = time.monotonic()
        for _ in range(10):
            (value,), _ = chief.exchange([value + 1])
        assert time.monotonic() - started < 5
        assert value[0] == 10
        chief.close()
        slow.close()


@pytest.mark.fault
def test_a_worker_whose_frame_was_cut_is_dropped() -> None:
    with servers(exchange_timeout=0.3) as made, ThreadPoolExecutor(1) as pool:
        chief, _ = join(made, 0, [array(START)])
        cut, _ = join(made, 1, [array(START)])
        connection = cut._servers[0].connection
        assert connection is not None
        connection._sock.sendall(bytes(16)[:8])  # half a header, and then nothing
        final = pool.submit(chief.finish, [array(0.0)])
        assert final.result(timeout=5)[1] == [1]
        connection._sock.settimeout(5)
        assert connection._sock.recv(1) == b""
        chief.close()
        cut.close()


@pytest.mark.fault
def test_a_server_that_does_not_answer_is_named_with_its_limit() -> None:
    """A stopped process: the kernel goes on to accept and to acknowledge, and nobody answers."""
    with servers() as made:
        client, _ = join(made, 0, [array(START)], exchange_timeout=0.3)
        with made[0][0].values._changed:  # every thread of the server waits for this
            started = time.monotonic()
            with pytest.raises(PeerError) as caught:
                client.exchange([array(START + 1)])
            assert time.monotonic() - started < 5
        assert "Parameter server 0 did not answer for 0.3 s (exchange_timeout)" in caught.value.problem
        assert made[0][1] in caught.value.problem


def test_the_chief_waits_for_a_slow_worker_longer_than_for_an_answer() -> None:
    with servers(exchange_timeout=0.2) as made, ThreadPoolExecutor(1) as pool:
        chief, _ = join(made, 0, [array(START)], exchange_timeout=0.2)
        slow, (value,) = join(made, 1, [array(0.0)])
        asked: list[int] = []
        ask = chief._request
        chief._request = lambda kind, make: (asked.append(kind), ask(kind, make))[1]  # type: ignore[method-assign]
        final = pool.submit(chief.finish, [array(0.0)])
        deadline = time.monotonic() + 5
        while len(asked) < 8 and time.monotonic() < deadline:  # eight answers of 0.05 s each
            threading.Event().wait(0.01)
        assert not final.done()
        slow.exchange([value + 1])
        slow.leave()
        (values,), missing = final.result(timeout=5)
        assert (values.tolist(), missing) == ([START + 1], [])
        chief.close()


def test_workers_wait_for_the_chiefs_values_and_not_for_ever() -> None:
    with (
        servers(join_timeout=0.2) as made,
        pytest.raises(PeerError, match="chief must send the initial values"),
    ):
        join(made, 1, [array(1.0)])
    with servers() as made, ThreadPoolExecutor(1) as pool:
        other = pool.submit(join, made, 1, [array(1.0)])
        chief, _ = join(made, 0, [array(START)])
        client, (value,) = other.result(timeout=5)
        assert value.tolist() == [START]
        chief.close()
        client.close()


def test_another_model_is_refused() -> None:
    with servers() as made:
        chief, _ = join(made, 0, [array(START)])
        with pytest.raises(PeerError, match="the same model"):
            join(made, 1, [array(1.0, 2.0)])
        chief.close()


@pytest.mark.fault
def test_an_unauthenticated_worker_is_refused() -> None:
    with servers() as made:
        chief, _ = join(made, 0, [array(START)])
        server, address = made[0]
        stranger = PeriodicClient([address], key=b"x" * 32, rank=1)
        with pytest.raises(PeerError):
            stranger.open([VariableSpec(size=1, dtype="float64", rule="delta")], [array(666.0)], "delta")
        with socket.create_connection(address.split(":")) as raw:
            raw.settimeout(10)
            assert raw.recv(64).startswith(b"emberflow/1")
            raw.sendall(bytes(64))  # a proof of nothing
            assert raw.recv(64) == bytes(32)  # it is refused
            assert raw.recv(64) == b""
        (value,), _ = chief.pull([array(0.0)])
        assert value.tolist() == [START]
        assert server.report()["refused"] == 2
        chief.close()


@pytest.mark.fault
def test_a_server_that_is_gone_is_an_error_at_once() -> None:
    with servers() as made:
        client, _ = join(made, 0, [array(START)])
    started = time.monotonic()
    with pytest.raises(PeerError, match="Parameter server 0"):
        client.exchange([array(1.0)])
    assert time.monotonic() - started < 5


def test_closing_leaves_no_thread() -> None:
    before = threading.active_count()
    with servers(2) as made:
        client, _ = join(made, 0, [array(START)])
        client.leave()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert threading.active_count() <= before


@pytest.mark.parametrize("wrong", ["average", 3, None])
def test_unknown_combiners_are_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="combiner="):
        check_combiner(wrong)


def test_moving_statistics_are_always_averaged() -> None:
    assert rule_of("delta", is_statistic=True) == "mean"
    assert rule_of(lambda server, *_: server, is_statistic=True) == "mean"
