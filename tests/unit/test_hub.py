"""The driver's connections: nodes send and exchange, unauthenticated connections disturb none of them."""

import contextlib
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emberflow._driver import hub as hub_module
from emberflow._driver import peer as peer_module
from emberflow._driver.events import AttemptEvent, Gone, Joined, JoinedAgain, NodeSent
from emberflow._driver.hub import Hub
from emberflow._plan import deadlines
from emberflow._protocol.driver_messages import (
    Admission,
    Gather,
    Gathered,
    LogLines,
    NodeReady,
    Quit,
    WorkerLost,
)
from emberflow._protocol.frames import Channel, frames_of, receive_one
from emberflow._protocol.outcome import Outcome
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._task.driver_connection import dial, is_admitted, stand_by
from emberflow.errors import ClusterError, PeerError
from tests.unit.nodes import outcome_of

KEY = b"k" * 32
WITHIN = 10.0


@pytest.fixture
def hub() -> Iterator[Hub]:
    with contextlib.closing(Hub("127.0.0.1", KEY, ranks=2)) as hub:
        yield hub


def join(hub: Hub, rank: int, key: bytes = KEY) -> SealedSocket:
    sock = dial(("127.0.0.1", hub.port), key, rank, f"host-{rank}", timeout=WITHIN)
    sock.settimeout(WITHIN)
    assert receive_one(sock) == Admission(is_granted=True)
    return sock


def next_event(hub: Hub) -> Any:
    return hub.events.get(timeout=WITHIN)


def no_event(hub: Hub) -> None:
    with pytest.raises(queue.Empty):
        hub.events.get_nowait()


def test_a_node_joins_speaks_and_goes(hub: Hub) -> None:
    with join(hub, 1) as sock:
        assert next_event(hub) == Joined(1, "host-1")
        Channel(sock).send(LogLines("hello"))
        assert next_event(hub) == NodeSent(1, LogLines("hello"))
    assert next_event(hub) == Gone(1)


def test_an_exchange_gives_every_rank_all_values_in_rank_order(hub: Hub) -> None:
    with join(hub, 1) as second, join(hub, 0) as first:
        channels = [Channel(first), Channel(second)]
        channels[1].send(Gather("most", "b"))
        channels[0].send(Gather("most", "a"))
        assert [channel.receive() for channel in channels] == [
            Gathered("most", ["a", "b"]),
            Gathered("most", ["a", "b"]),
        ]


def test_an_exchange_of_some_ranks_does_not_wait_for_those_that_are_done(hub: Hub) -> None:
    with join(hub, 1) as second, join(hub, 0) as first:
        channels = [Channel(first), Channel(second)]
        channels[0].send(Gather("most-1", 3, of=2))
        channels[1].send(Gather("done", None))
        assert channels[0].receive() == Gathered("most-1", [3])
        channels[0].send(Gather("most-2", 1, of=2))
        assert channels[0].receive() == Gathered("most-2", [1])
        channels[0].send(Gather("done", None))
        for channel in channels:
            assert channel.receive() == Gathered("done", [None, None])


@pytest.mark.fault
def test_a_wrong_key_is_refused_and_nobody_hears_of_it(hub: Hub) -> None:
    with pytest.raises(PeerError):
        join(hub, 0, key=b"x" * 32)
    with join(hub, 0):
        assert next_event(hub) == Joined(0, "host-0")


@pytest.mark.alone
def test_a_hundred_silent_connections_keep_no_node_waiting(hub: Hub) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(100):
            held.enter_context(socket.create_connection(("127.0.0.1", hub.port), timeout=WITHIN))
        started = time.monotonic()
        with join(hub, 0), join(hub, 1):
            assert {next_event(hub).rank for _ in range(2)} == {0, 1}
        assert time.monotonic() - started < 3.0  # less than the time limit of a handshake


def test_connections_that_close_before_the_handshake_leave_the_hub_as_it_was(hub: Hub) -> None:
    for _ in range(100):
        socket.create_connection(("127.0.0.1", hub.port), timeout=WITHIN).close()
    with join(hub, 0) as sock:
        assert next_event(hub) == Joined(0, "host-0")
        Channel(sock).send(NodeReady())
        assert next_event(hub) == NodeSent(0, NodeReady())
    assert next_event(hub) == Gone(0)
    no_event(hub)


@pytest.mark.parametrize("rank", [2, -1])
def test_a_rank_that_does_not_exist_is_refused(hub: Hub, rank: int) -> None:
    with dial(("127.0.0.1", hub.port), KEY, rank, "host", timeout=WITHIN) as refused:
        assert refused.recv(1) == b""  # closed
    no_event(hub)


def dial_again(hub: Hub, rank: int) -> SealedSocket:
    """Join as a second task of a rank."""
    sock = dial(("127.0.0.1", hub.port), KEY, rank, "other", timeout=WITHIN)
    assert not is_admitted(sock, WITHIN)
    assert next_event(hub) == JoinedAgain(rank)
    return sock


@pytest.mark.parametrize("is_first_gone", [False, True])
def test_a_second_task_of_a_rank_starts_no_node_and_waits_for_the_end(hub: Hub, is_first_gone: bool) -> None:
    with join(hub, 0) as first:
        assert next_event(hub) == Joined(0, "host-0")
        if is_first_gone:
            first.close()
            assert next_event(hub) == Gone(0)
        with dial_again(hub, 0) as second:
            assert hub.copies() == {0}
            hub.broadcast(WorkerLost(1))  # for nodes only
            hub.quit_all()
            stand_by(second)
        with dial_again(hub, 0) as third:
            stand_by(third)
        if not is_first_gone:
            assert [Channel(first).receive() for _ in range(1)] == [WorkerLost(1)]


def test_a_second_task_that_ends_is_forgotten_and_nobody_hears_of_it(hub: Hub) -> None:
    with join(hub, 0) as first, join(hub, 1) as other:
        assert {next_event(hub).rank for _ in range(2)} == {0, 1}
        dial_again(hub, 0).close()
        for sock in (first, other):  # the hub has handled what came before
            Channel(sock).send(NodeReady())
        assert {next_event(hub) for _ in range(2)} == {NodeSent(0, NodeReady()), NodeSent(1, NodeReady())}
        deadline = time.monotonic() + WITHIN
        while hub.copies():
            assert time.monotonic() < deadline
        no_event(hub)


@pytest.mark.parametrize(
    "noise", [(struct.pack("!I", 5), b"{bad}"), (struct.pack("!I", 1 << 31),), (b"\0\0\0\x02", b"[]")]
)
def test_a_node_that_sends_no_message_is_dropped_and_the_others_go_on(
    hub: Hub, noise: tuple[bytes, ...]
) -> None:
    with join(hub, 0) as good, join(hub, 1) as bad:
        assert {next_event(hub).rank for _ in range(2)} == {0, 1}
        for record in noise:
            bad.send_record(record)
        assert next_event(hub) == Gone(1)
        Channel(good).send(LogLines("still here"))
        assert next_event(hub) == NodeSent(0, LogLines("still here"))


def test_a_node_that_comes_after_the_end_is_sent_away(hub: Hub) -> None:
    hub.quit_all()
    with join(hub, 0) as sock:
        assert Channel(sock).receive() == Quit()


def test_close_closes_all_connections_authenticated_or_not() -> None:
    hub = Hub("127.0.0.1", KEY, ranks=1)
    with join(hub, 0) as node, socket.create_connection(("127.0.0.1", hub.port), timeout=WITHIN) as other:
        next_event(hub)
        other.recv(64)  # the hub has begun to talk to it
        hub.close()
        assert node.recv(1) == b""
        assert other.recv(64) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", hub.port), timeout=WITHIN)


def test_output_that_nobody_takes_is_counted_and_not_kept(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "EVENTS_BEHIND", 10)
    with join(hub, 0) as sock:
        channel = Channel(sock)
        for number in range(100):
            channel.send(LogLines(f"{number}\n{number}"))
        channel.send(outcome_of(0))  # this must arrive, however far behind the driver is
        await_last(hub, lambda event: isinstance(event, NodeSent) and isinstance(event.message, Outcome))
        seen = drain(hub)
        assert len(seen) == 12  # joined, 10 outputs, the outcome
        channel.send(LogLines("after"))
        assert next_event(hub).message.text.splitlines() == [
            "... 180 lines left out here; all are in the executor's log",
            "after",
        ]


def test_what_was_left_out_at_the_end_is_told_when_the_node_goes(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "EVENTS_BEHIND", 0)
    with join(hub, 0) as sock:
        for _ in range(100):
            Channel(sock).send(LogLines("x"))
    await_last(hub, lambda event: isinstance(event, Gone))
    assert drain(hub)[-2].message.text.startswith("... 92 lines left out")


def await_last(hub: Hub, is_it: Callable[[AttemptEvent], bool]) -> None:
    """Wait until such an event is the newest, without taking any."""
    deadline = time.monotonic() + WITHIN
    while not (hub.events.queue and is_it(hub.events.queue[-1])):
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)


def drain(hub: Hub) -> list[Any]:
    return [hub.events.get_nowait() for _ in range(hub.events.qsize())]


@pytest.mark.fault
def test_more_nodes_than_open_files_are_refused_with_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module.resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(ClusterError, match="ulimit -n"):
        Hub("127.0.0.1", KEY, ranks=1000)


def test_tasks_that_can_do_without_join_again_and_only_as_many_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = 3
    monkeypatch.setattr(hub_module.resource, "getrlimit", lambda _: (hub_module.SPARE_FILES + room, -1))
    with contextlib.closing(Hub("127.0.0.1", KEY, ranks=1000, is_optional=True)) as hub:
        with join(hub, 999):
            assert next_event(hub) == Joined(999, "host-999")
        assert next_event(hub) == Gone(999)
        with join(hub, 999), join(hub, 0), join(hub, 1):
            assert [next_event(hub).rank for _ in range(room)] == [999, 0, 1]
            with dial(("127.0.0.1", hub.port), KEY, 2, "host-2", timeout=WITHIN) as late:
                assert not is_admitted(late, WITHIN)


BIG = Gathered("x" * (8 * 1024 * 1024), [])  # more than the kernel holds for one connection


@pytest.mark.alone
@pytest.mark.fault
def test_a_node_that_does_not_read_holds_nobody_up_and_is_given_up(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "SEND_TIMEOUT", 2.0)
    with join(hub, 0) as stuck, join(hub, 1) as other:
        assert {next_event(hub).rank for _ in range(2)} == {0, 1}
        channel = Channel(other)
        started = time.monotonic()
        for number in range(3):
            hub.send(0, BIG)
            hub.broadcast(WorkerLost(number))
            assert channel.receive() == WorkerLost(number)
        channel.send(LogLines("I can be heard, too"))
        assert next_event(hub).message.text == "I can be heard, too"
        assert time.monotonic() - started < 1.9  # before the other was given up
        event = next_event(hub)
        assert event == Gone(0, "it has not read what the driver sent for 2 s")
        assert 1.9 < time.monotonic() - started < 8
        hub.send(0, WorkerLost(4))  # to nobody
        hub.send(1, WorkerLost(4))
        assert channel.receive() == WorkerLost(4)
        assert_no_frame_is_cut(stuck)


def assert_no_frame_is_cut(sock: socket.socket) -> None:
    """Read to the end: whole messages, then at most the beginning of one."""
    channel = Channel(sock)
    with contextlib.suppress(EOFError, ConnectionResetError):
        while True:
            assert channel.receive() in (BIG, *(WorkerLost(number) for number in range(3)))


@pytest.mark.alone
def test_a_slow_node_gets_everything_in_order_and_is_kept(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "SEND_TIMEOUT", 1.0)
    with join(hub, 0) as slow:
        assert next_event(hub).rank == 0
        for number in range(100):
            hub.send(0, Gathered("x" * 200_000, [number]))
        started = time.monotonic()
        frames, numbers = frames_of(slow), []
        while len(numbers) < 100:  # slower than the limit in all, but never silent for as long
            numbers += [message.values[0] for message in frames.feed(slow.recv(100_000))]
            threading.Event().wait(0.01)
        assert numbers == list(range(100))
        assert time.monotonic() - started > 1.0
        no_event(hub)


@pytest.mark.fault
def test_a_node_that_is_too_far_behind_is_given_up_at_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "MAX_UNSENT", 16 * 1024 * 1024)
    with join(hub, 0):
        assert next_event(hub).rank == 0
        for _ in range(5):
            hub.send(0, BIG)
        assert "MB behind with what the driver sends" in next_event(hub).why


def test_a_node_that_speaks_without_end_is_still_spoken_to(hub: Hub) -> None:
    with join(hub, 0) as sock:
        assert next_event(hub).rank == 0
        over = threading.Event()

        def chatter() -> None:
            channel = Channel(sock)
            while not over.is_set():
                channel.send(LogLines("x" * 1000))

        thread = threading.Thread(target=chatter)
        thread.start()
        try:
            hub.send(0, BIG)
            assert Channel(sock).receive() == BIG
        finally:
            over.set()
            thread.join()
