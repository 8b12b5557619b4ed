"""Somebody between two hosts can neither read, change, repeat, reorder nor insert anything."""

import contextlib
import pickle
import queue
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from emberflow._driver.events import Gone, NodeSent, Undelivered
from emberflow._driver.hub import Hub
from emberflow._driver.shipping import INLINE_LIMIT, shipment_of
from emberflow._driver.value_server import ValueServer
from emberflow._protocol import sockets
from emberflow._protocol.acceptor import Acceptor
from emberflow._protocol.driver_messages import LogLines, Quit
from emberflow._protocol.file_transfer import VALUE, receive_size, send_request
from emberflow._protocol.frames import Channel, pack
from emberflow._protocol.sealed import CHUNK, TAG, Seals, TamperedError, seals_of_client, seals_of_server
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._task.driver_connection import dial, dial_values, is_admitted
from emberflow.errors import PeerError
from emberflow.strategies.periodic.client import PeriodicClient
from emberflow.strategies.periodic.combiners import FUNCTION
from emberflow.strategies.periodic.server import PeriodicServer
from emberflow.strategies.periodic.value_layout import VariableSpec
from emberflow.strategies.transport.array_connection import ArrayConnection
from emberflow.strategies.transport.ring import Ring
from emberflow.strategies.transport.threaded_server import ThreadedServer
from tests.unit.nodes import KEY, WITHIN
from tests.unit.wire import ATTACKS, Alter, Wire, changed, preceded, truncated

QUICKLY = 20.0  # seconds; far below exchange_timeout, and enough for a busy machine
VALUE_BYTES = np.full(1, 1.2345678, np.float32).tobytes()


def seals() -> tuple[Seals, Seals]:
    """Both ends of one connection."""
    known = (KEY, "test", b"n" * 64)
    return seals_of_client(*known, "the server"), seals_of_server(*known, "the client at 10.0.0.7")


@pytest.fixture
def hub() -> Iterator[Hub]:
    with contextlib.closing(Hub("127.0.0.1", KEY, ranks=2)) as hub:
        yield hub


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < QUICKLY


# Records.


def test_a_record_opens_on_the_other_side_and_shows_nothing_of_its_content() -> None:
    client, server = seals()
    for size in (0, 1, CHUNK):
        content = b"gradient" * (size // 8)
        record = client.sealer.seal(content)
        assert len(record) == len(content) + TAG
        assert b"gradient" not in record
        assert server.opener.open(record) == content
    assert client.opener.open(server.sealer.seal(b"back")) == b"back"


def test_the_same_content_never_looks_the_same_and_no_connection_shares_keys() -> None:
    client, _ = seals()
    other = seals_of_client(KEY, "test", b"m" * 64, "the server")
    elsewhere = seals_of_client(KEY, "another purpose", b"n" * 64, "the server")
    records = [client.sealer.seal(bytes(64)), client.sealer.seal(bytes(64))]
    records += [each.sealer.seal(bytes(64)) for each in (other, elsewhere)]
    assert len(set(records)) == 4


def test_a_record_that_was_changed_repeated_or_reordered_is_refused_with_the_name_of_its_sender() -> None:
    for attack in ("changed", "repeated", "reordered", "reflected", "shortened"):
        client, server = seals()
        first, second = client.sealer.seal(b"first"), client.sealer.seal(b"second")
        sent = {
            "changed": [changed(first)],
            "repeated": [first, first],
            "reordered": [second],
            "reflected": [server.sealer.seal(b"first")],
            "shortened": [first[:-1]],
        }[attack]
        *good, bad = sent
        assert [server.opener.open(record) for record in good] == [b"first"] * len(good)
        with pytest.raises(
            TamperedError, match=r"the client at 10\.0\.0\.7 sends must arrive unchanged"
        ) as caught:
            server.opener.open(bad)
        assert "alters traffic" in caught.value.fix


def test_records_go_into_the_callers_own_buffers() -> None:
    client, server = seals()
    content = np.arange(1000, dtype=np.float32)
    buffer, into = memoryview(bytearray(CHUNK + TAG)), np.zeros(1000, np.float32)
    record = client.sealer.seal_into(content.view(np.uint8).data, buffer)
    assert record.obj is buffer.obj
    server.opener.open_into(record, into.view(np.uint8).data)
    assert (into == content).all()


# The driver's connections.


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.fault
def test_the_driver_drops_a_node_whose_messages_were_altered_and_says_why(hub: Hub, attack: Alter) -> None:
    with Wire(hub.port) as wire, dial(("127.0.0.1", wire.port), KEY, 1, "host-1", WITHIN) as sock:
        assert hub.events.get(timeout=WITHIN).rank == 1
        wire.to_server = attack
        with quickly():
            sock.sendall(pack(LogLines("one"), sock.sealer) + pack(LogLines("two"), sock.sealer))
            events = [hub.events.get(timeout=WITHIN)]
            while not isinstance(events[-1], Gone):
                events.append(hub.events.get(timeout=WITHIN))
    assert events[-1].rank == 1
    assert "the client at 127.0.0.1 (node to driver) sends must arrive unchanged" in events[-1].why
    genuine = [NodeSent(1, LogLines("one")), NodeSent(1, LogLines("two"))]
    assert events[:-1] == genuine[: len(events) - 1]  # what came before the attack, and nothing else


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_task_refuses_what_the_driver_did_not_send(hub: Hub, attack: Alter) -> None:
    with Wire(hub.port) as wire, dial(("127.0.0.1", wire.port), KEY, 0, "host-0", WITHIN) as sock:
        hub.events.get(timeout=WITHIN)
        assert is_admitted(sock, WITHIN)
        wire.to_client = attack
        hub.send(0, LogLines("a" * 100))
        sock.settimeout(WITHIN)
        channel = Channel(sock)
        with quickly(), pytest.raises(TamperedError, match=f"the server at 127.0.0.1:{wire.port}"):
            receive_twice(channel)


def receive_twice(channel: Channel) -> None:
    assert channel.receive() == LogLines("a" * 100)  # the genuine one, where it was repeated
    channel.receive()


def test_a_message_without_the_seal_is_refused_after_the_handshake(hub: Hub) -> None:
    """An attacker who lets the handshake pass and then speaks our protocol."""
    with Wire(hub.port) as wire, dial(("127.0.0.1", wire.port), KEY, 1, "host-1", WITHIN) as sock:
        hub.events.get(timeout=WITHIN)
        wire.to_server = lambda _: pack(LogLines("of somebody else"))
        sock.sendall(b"x")
        event = hub.events.get(timeout=WITHIN)
    assert isinstance(event, Gone)
    assert event.why


def test_a_stream_that_was_cut_is_the_end_of_that_node(hub: Hub) -> None:
    with Wire(hub.port) as wire, dial(("127.0.0.1", wire.port), KEY, 1, "host-1", WITHIN) as sock:
        hub.events.get(timeout=WITHIN)
        wire.to_server = truncated
        sock.sendall(pack(LogLines("cut"), sock.sealer))
        with quickly():
            assert hub.events.get(timeout=WITHIN) == Gone(1)


def test_neither_messages_nor_functions_nor_values_can_be_read_on_the_way(hub: Hub, tmp_path: Any) -> None:
    secret = b"a function and its data" * 1000
    events: queue.Queue[Any] = queue.Queue()
    with contextlib.ExitStack() as held:
        shipment = held.enter_context(contextlib.closing(shipment_of(_holding(secret), is_connect=False)))
        server = ValueServer(timeout=WITHIN, shipment=shipment, events=events)
        held.callback(server.close)
        hub.on_values = server.admit
        wire = held.enter_context(Wire(hub.port))
        address = ("127.0.0.1", wire.port)
        sock = held.enter_context(dial(address, KEY, 1, "host-1", WITHIN))
        assert hub.events.get(timeout=WITHIN).rank == 1
        assert is_admitted(sock, WITHIN)
        Channel(sock).send(LogLines("a line of your log"))
        hub.send(1, Quit())
        assert Channel(sock).receive() == Quit()
        values = held.enter_context(dial_values(address, KEY, WITHIN))
        receive_size(values)
        send_request(values, VALUE, 1, len(secret))
        values.send_chunks(memoryview(secret))
        assert receive_size(values) == len(secret)
        with server.take(1) as taken:
            assert taken.read() == secret
    for word in (b"a line of your log", b"kind", b"join", b"quit", b"function and its data"):
        assert word not in wire.seen
    assert len(wire.seen) > len(secret)


def _holding(data: bytes) -> Any:
    padding = bytes(INLINE_LIMIT)
    return lambda _: (data, padding)


@pytest.mark.fault
def test_a_value_that_was_altered_is_not_taken_and_its_rank_is_told(hub: Hub) -> None:
    events: queue.Queue[Any] = queue.Queue()
    server = ValueServer(timeout=WITHIN, shipment=shipment_of(print, is_connect=False), events=events)
    hub.on_values = server.admit
    with (
        contextlib.closing(server),
        Wire(hub.port) as wire,
        dial_values(("127.0.0.1", wire.port), KEY, WITHIN) as sock,
    ):
        receive_size(sock)

        def change_the_value(data: bytes) -> bytes:
            if len(data) >= 1000:
                return changed(data)
            wire.to_server = change_the_value  # the request must arrive: it says who is to be told
            return data

        wire.to_server = change_the_value
        send_request(sock, VALUE, 1, 1000)
        with quickly():
            sock.send_chunks(memoryview(bytes(1000)))
            event = events.get(timeout=WITHIN)
    assert isinstance(event, Undelivered)
    assert event.rank == 1
    assert "must arrive unchanged" in event.problem
    with pytest.raises(KeyError):
        server.take(1)


# The ring.


@contextlib.contextmanager
def rings(*, encrypt: bool) -> Iterator[tuple[list[Ring], Wire]]:
    """Two ranks, with somebody on the way from rank 0 to rank 1."""
    listeners = [Ring.listen("127.0.0.1") for _ in range(2)]
    with Wire(sockets.host_and_port(listeners[1].address)[1]) as wire, ThreadPoolExecutor(2) as pool:
        addresses = [listeners[0].address, wire.address]
        joining = [
            pool.submit(
                Ring.connect,
                listeners[rank],
                rank=rank,
                addresses=addresses,
                key=KEY,
                timeout=WITHIN,
                encrypt=encrypt,
            )
            for rank in range(2)
        ]
        both = [each.result() for each in joining]
        try:
            yield both, wire
        finally:
            for ring in both:
                ring.close()


def sums_of(both: list[Ring], array: Any) -> list[Any]:
    """Return each rank's sum, or its error."""

    def sum_on(ring: Ring) -> Any:
        try:
            return ring.sum_arrays([array])[0]
        except PeerError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(sum_on, both))


@pytest.mark.parametrize("size", [3, 4096, 4097, 300_001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_an_encrypted_ring_sums_as_a_plain_one(size: int, dtype: Any) -> None:
    array = np.random.default_rng(1).normal(0, 1e3, size).astype(dtype)
    totals = []
    for encrypt in (False, True):
        with rings(encrypt=encrypt) as (both, _):
            totals += sums_of(both, array)
    assert all((total == array + array).all() for total in totals)


@pytest.mark.parametrize("size", [10, 100_000])
def test_gradients_cannot_be_read_on_the_way_of_an_encrypted_ring(size: int) -> None:
    array = np.full(size, 1.2345678, np.float32)
    with rings(encrypt=False) as (both, wire):
        sums_of(both, array)
        assert VALUE_BYTES * 5 in wire.seen  # a run that does not encrypt: the wire does see what passes
    with rings(encrypt=True) as (both, wire):
        sums_of(both, array)
        assert len(wire.seen) > array.nbytes / 2
        assert VALUE_BYTES * 2 not in wire.seen
        assert (2 * array[:1]).tobytes() * 2 not in wire.seen


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("encrypt", [True, False])
@pytest.mark.fault
def test_a_ring_ends_at_once_when_its_headers_or_data_are_altered(attack: Alter, encrypt: bool) -> None:
    with rings(encrypt=encrypt) as (both, wire):
        assert all((total == 2).all() for total in sums_of(both, np.ones(3, np.float32)))
        wire.to_server = (
            attack if encrypt else preceded
        )  # data are not protected where the run does not encrypt
        with quickly():
            outcomes = sums_of(both, np.ones(300_000, np.float32))
            again = sums_of(both, np.ones(3, np.float32))  # what was repeated is noticed here at the latest
    told = next(each for each in (*outcomes, *again) if isinstance(each, TamperedError))
    assert re.search(r"Rank 0 sent bytes that fail their authentication.*address='127\.0\.0\.1:", str(told))
    assert "alters traffic" in told.fix
    assert all(isinstance(each, PeerError) for each in again)


@pytest.mark.fault
def test_a_notice_that_nobody_sent_ends_the_ring() -> None:
    """BYE or ABORT without a seal, on the way back."""
    with rings(encrypt=True) as (both, wire):
        sums_of(both, np.ones(3, np.float32))
        back = next(sock for sock in wire._held[1:] if sock.getpeername()[1] != wire._target[1])
        back.sendall(bytes([4]) + bytes(31))
        with quickly():
            outcomes = sums_of(both, np.ones(3_000_000, np.float32))
    assert any(isinstance(each, TamperedError) and "Rank 1 sent" in str(each) for each in outcomes)


@pytest.mark.fault
def test_a_ring_whose_stream_is_cut_names_the_rank() -> None:
    with rings(encrypt=True) as (both, wire):
        sums_of(both, np.ones(3, np.float32))
        wire.to_server = truncated
        with quickly():
            outcomes = sums_of(both, np.ones(10, np.float32))
    assert isinstance(outcomes[1], PeerError)
    assert "Rank 0 exited without reporting a result" in str(outcomes[1])


# Servers of asynchronous training.


@contextlib.contextmanager
def periodic(*, encrypt: bool) -> Iterator[tuple[PeriodicClient, Wire]]:
    listener = sockets.listen("127.0.0.1")
    server = PeriodicServer(listener, index=0, workers=1, key=KEY, encrypt=encrypt).start()
    with contextlib.closing(server), Wire(listener.getsockname()[1]) as wire:
        client = PeriodicClient([wire.address], key=KEY, rank=0, encrypt=encrypt)
        with contextlib.closing(client):
            yield client, wire


SPEC = [VariableSpec(size=1000, dtype="float32", rule="delta")]


def test_values_of_periodic_averaging_cannot_be_read_on_the_way() -> None:
    values = [np.full(1000, 1.2345678, np.float32)]
    seen = {}
    for encrypt in (False, True):
        with periodic(encrypt=encrypt) as (client, wire):
            first = client.open(SPEC, values, "delta")
            merged, _ = client.exchange([first[0] + 1])
            np.testing.assert_allclose(merged[0], values[0] + 1, rtol=1e-6)
            seen[encrypt] = bytes(wire.seen)
    assert VALUE_BYTES * 5 in seen[False]
    assert VALUE_BYTES * 2 not in seen[True]
    for bytes_seen in seen.values():  # requests are never readable
        assert b"layout" not in bytes_seen


def test_a_combiner_is_unpickled_only_as_the_chief_sent_it() -> None:
    def combine(old: Any, new: Any, *_: Any) -> Any:
        return new

    with periodic(encrypt=False) as (client, wire):
        client.open(
            [VariableSpec(size=1000, dtype="float32", rule=FUNCTION)], [np.zeros(1000, np.float32)], combine
        )
        assert b"cloudpickle" not in wire.seen
        assert pickle.dumps(b"")[:2].hex().encode() not in wire.seen


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.fault
def test_a_worker_refuses_values_that_the_server_did_not_send(attack: Alter) -> None:
    values = [np.ones(1000, np.float32)]
    with periodic(encrypt=True) as (client, wire):
        client.open(SPEC, values, "delta")
        wire.to_client = attack
        with quickly(), pytest.raises(TamperedError, match=wire.address):
            exchange_often(client, values)


def exchange_often(client: PeriodicClient, values: list[Any]) -> None:
    for _ in range(3):  # what was repeated is noticed at the next
        client.exchange(values)


def test_arrays_of_any_size_pass_a_server_that_encrypts() -> None:
    def echo(connection: ArrayConnection) -> None:
        while True:
            kind, fields, nbytes = connection.receive()
            array = np.empty(nbytes, np.uint8)
            connection.receive_arrays(nbytes, array)
            connection.send(kind, fields, array)

    listener = sockets.listen("127.0.0.1")
    server = ThreadedServer(listener, key=KEY, purpose="rows", handle=echo, encrypt=True)
    server.start()
    with contextlib.closing(server):
        sock = sockets.dial("127.0.0.1", listener.getsockname()[1], KEY, "rows", WITHIN)
        with contextlib.closing(ArrayConnection(sock, WITHIN, encrypt=True)) as connection:
            for size in (0, 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7):
                sent = np.arange(size, dtype=np.uint8)
                connection.send(7, {"size": size}, sent)
                assert connection.receive(WITHIN) == (7, {"size": size}, size)
                back = np.empty(size, np.uint8)
                connection.receive_arrays(size, back)
                assert (back == sent).all()


def test_a_sealed_socket_keeps_the_timeout_and_the_descriptor_of_the_one_it_was_made_of() -> None:
    admitted: queue.Queue[SealedSocket] = queue.Queue()
    listener = sockets.listen("127.0.0.1")
    with (
        contextlib.closing(Acceptor(listener, key=KEY, purpose="p", admit=admitted.put)),
        sockets.dial("127.0.0.1", listener.getsockname()[1], KEY, "p", WITHIN) as client,
        admitted.get(timeout=WITHIN) as server,
    ):
        assert client.gettimeout() is server.gettimeout() is None
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        client.send_record(b"hello")
        assert server.receive_record(5) == b"hello"
        client.close()
        assert server.receive_record_if_any(5) is None
