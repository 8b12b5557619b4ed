"""Whoever proves the key gets in, however many others come; nobody else does."""

import contextlib
import hmac
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from emberflow._driver.events import Gone, Joined
from emberflow._driver.hub import Hub
from emberflow._plan import deadlines
from emberflow._protocol import acceptor as acceptor_module
from emberflow._protocol import sockets
from emberflow._protocol.acceptor import Acceptor, handshakes_at_once
from emberflow._protocol.sealed import seals_of_client
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._task.driver_connection import dial
from emberflow.errors import PeerError
from emberflow.strategies.periodic.client import PeriodicClient
from emberflow.strategies.periodic.server import PeriodicServer
from emberflow.strategies.periodic.value_layout import VariableSpec
from emberflow.strategies.transport.array_connection import ArrayConnection
from emberflow.strategies.transport.ring import Ring
from emberflow.strategies.transport.threaded_server import ThreadedServer
from tests.unit.unauthenticated_peers import flood, limited_files, open_files, silent

KEY = b"k" * 32
PURPOSE = "test"
WITHIN = 20.0
STORM = 1000
LATENCY = 0.05


class Server:
    """An acceptor, and those who got in."""

    def __init__(self) -> None:
        self.admitted: queue.Queue[SealedSocket] = queue.Queue()
        listener = sockets.listen("127.0.0.1")
        self.port = listener.getsockname()[1]
        self.acceptor = Acceptor(listener, key=KEY, purpose=PURPOSE, admit=self.admitted.put)

    def dial(self, key: bytes = KEY) -> SealedSocket:
        return sockets.dial("127.0.0.1", self.port, key, PURPOSE, WITHIN)

    def close(self) -> None:
        self.acceptor.close()
        while not self.admitted.empty():
            self.admitted.get().close()


@pytest.fixture
def server() -> Iterator[Server]:
    with contextlib.closing(Server()) as server:
        yield server


def answer_to(greeting: bytes, purpose: str = PURPOSE) -> bytes:
    """Return a right answer, from the description of the protocol and not from its code."""
    nonce = secrets.token_bytes(32)
    signed = b"\0".join((b"emberflow/1\n", b"client", purpose.encode(), nonce + greeting[12:]))
    return nonce + hmac.digest(KEY, signed, "sha256")


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := sock.recv(size - len(data))):
        data += part
    return data


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN
    while not is_so():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def storm(port: int, purpose: str) -> list[SealedSocket]:
    """Connect a thousand times before anything is answered, answer after the latency; return the connections."""
    clients = [socket.create_connection(("127.0.0.1", port), timeout=WITHIN) for _ in range(STORM)]
    greetings = [exactly(client, 44) for client in clients]
    threading.Event().wait(LATENCY)
    answers = [answer_to(greeting, purpose) for greeting in greetings]
    for client, answer in zip(clients, answers, strict=True):
        client.sendall(answer)
    said = [exactly(client, 32) for client in clients]
    assert sum(len(tag) == 32 and tag != bytes(32) for tag in said) == STORM
    nonces = [answer[:32] + greeting[12:] for answer, greeting in zip(answers, greetings, strict=True)]
    return [
        SealedSocket(client, seals_of_client(KEY, purpose, both, "the server"))
        for client, both in zip(clients, nonces, strict=True)
    ]


def test_a_connection_is_handed_over_blocking_and_both_sides_talk(server: Server) -> None:
    with server.dial() as client, server.admitted.get(timeout=WITHIN) as ours:
        assert ours.gettimeout() is None
        client.sendall(b"hello")
        assert exactly(ours, 5) == b"hello"
        ours.sendall(b"you")
        assert exactly(client, 3) == b"you"


def test_a_thousand_honest_clients_that_connect_before_any_answers_all_get_in() -> None:
    with open_files(4 * STORM), contextlib.closing(Server()) as server:
        started = time.monotonic()
        clients = storm(server.port, PURPOSE)
        for _ in clients:
            server.admitted.get(timeout=WITHIN).close()
        print(f"{STORM} in {time.monotonic() - started:.2f} s")
        for client in clients:
            client.close()
        assert server.acceptor.refused == 0


@pytest.mark.fault
def test_a_thousand_nodes_that_connect_before_any_answers_all_join_the_hub() -> None:
    with open_files(4 * STORM), contextlib.closing(Hub("127.0.0.1", KEY, STORM)) as hub:
        clients = storm(hub.port, "node to driver")
        for rank, client in enumerate(clients):
            body = f'{{"kind": "join", "rank": {rank}, "host": "h"}}'.encode()
            client.send_record(len(body).to_bytes(4, "big"))
            client.send_record(body)
        events = [hub.events.get(timeout=WITHIN) for _ in clients]
        joined = {event.rank for event in events if isinstance(event, Joined)}
        for client in clients:
            client.close()
    assert joined == set(range(STORM))


def test_honest_clients_beyond_the_room_get_in_by_trying_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor_module, "_MOST", 16)
    monkeypatch.setattr(acceptor_module, "_LEAST", 16)
    with contextlib.closing(Server()) as server, silent(server.port, 64):
        with ThreadPoolExecutor(100) as pool:
            clients = list(pool.map(lambda _: server.dial(), range(100)))
        for client in clients:
            server.admitted.get(timeout=WITHIN).close()
            client.close()
        assert server.acceptor.refused >= 48


@pytest.mark.alone
def test_a_wrong_key_is_an_error_at_once_and_not_tried_again(server: Server) -> None:
    started = time.monotonic()
    with pytest.raises(PeerError, match="another key"):
        server.dial(key=b"x" * 32)
    assert time.monotonic() - started < 2
    assert server.acceptor.refused == 1
    assert server.admitted.empty()


@pytest.mark.alone
def test_a_silent_stranger_is_dropped_at_the_limit(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "HANDSHAKE_TIMEOUT", 0.3)
    with silent(server.port, 1) as (stranger,):
        started = time.monotonic()
        assert len(exactly(stranger, 44)) == 44
        stranger.sendall(b"." * 63)  # almost an answer
        with pytest.raises(ConnectionResetError):
            stranger.recv(1)
        assert 0.2 < time.monotonic() - started < 3


def test_a_full_house_turns_away_the_address_that_has_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor_module, "_MOST", 20)
    monkeypatch.setattr(acceptor_module, "_LEAST", 20)
    with contextlib.closing(Server()) as server:
        honest = socket.socket()
        honest.settimeout(WITHIN)
        honest.bind(("127.0.0.2", 0))
        honest.connect(("127.0.0.1", server.port))
        greeting = exactly(honest, 44)
        with silent(server.port, 500):
            wait_until(lambda: server.acceptor.refused == 481)  # 501 came, 20 have room
            honest.sendall(answer_to(greeting))
            assert len(exactly(honest, 32)) == 32
        honest.close()


def test_the_room_follows_from_the_limit_of_open_files() -> None:
    with limited_files(1024):
        assert 300 < handshakes_at_once() < 512
        assert handshakes_at_once(reserved=10_000) == 64
    with open_files(20_000):
        assert handshakes_at_once() == 8192


@pytest.mark.fault
def test_a_process_without_descriptors_turns_strangers_away_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acceptor_module, "_LEAST", 100_000)  # as if nobody counted
    monkeypatch.setattr(acceptor_module, "_MOST", 100_000)
    with contextlib.closing(Server()) as server:
        client = socket.socket()  # the last that is opened here before the limit
        client.bind(("127.0.0.2", 0))  # a client of the flood's address may be dropped, and has to try again
        with flood(server.port, at_once=600), limited_files(client.fileno() + 300):
            client.settimeout(WITHIN)
            client.connect(("127.0.0.1", server.port))
            client.sendall(answer_to(exactly(client, 44)))
            assert len(exactly(client, 32)) == 32
            server.admitted.get(timeout=WITHIN).close()
        client.close()


def test_close_drops_those_in_a_handshake_and_stops_listening(server: Server) -> None:
    with silent(server.port, 3) as strangers, server.dial() as client:
        ours = server.admitted.get(timeout=WITHIN)
        for stranger in strangers:
            exactly(stranger, 44)
        server.acceptor.close()
        server.acceptor.close()
        for stranger in strangers:
            assert stranger.recv(1) == b""
        ours.sendall(b"still here")
        assert exactly(client, 10) == b"still here"
        ours.close()
    with pytest.raises(ConnectionRefusedError):
        server.dial()


def test_a_callback_that_raises_harms_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = iter([ValueError("no"), None])
    admitted: queue.Queue[socket.socket] = queue.Queue()

    def admit(sock: socket.socket) -> None:
        if error := next(outcomes):
            raise error
        admitted.put(sock)

    listener = sockets.listen("127.0.0.1")
    port = listener.getsockname()[1]
    with contextlib.closing(Acceptor(listener, key=KEY, purpose=PURPOSE, admit=admit)):
        with sockets.dial("127.0.0.1", port, KEY, PURPOSE, WITHIN) as first:
            assert first.recv(1) == b""
        with sockets.dial("127.0.0.1", port, KEY, PURPOSE, WITHIN):
            admitted.get(timeout=WITHIN).close()
    assert "could not be admitted" in caplog.text


def test_descriptors_above_1024_are_served() -> None:
    with open_files(4096), contextlib.ExitStack() as held:
        for _ in range(1100):
            held.enter_context(socket.socket())
        server = held.enter_context(contextlib.closing(Server()))
        with server.dial() as client, server.admitted.get(timeout=WITHIN) as ours:
            assert min(client.fileno(), ours.fileno()) > 1024
            client.sendall(b"x")
            assert ours.recv(1) == b"x"
        join_ring([Ring.listen("127.0.0.1") for _ in range(2)])


def join_ring(listeners: list) -> None:  # type: ignore[type-arg]
    addresses = [listener.address for listener in listeners]

    def join(rank: int) -> float:
        ring = Ring.connect(listeners[rank], rank=rank, addresses=addresses, key=KEY, timeout=WITHIN)
        try:
            return float(ring.sum_arrays([np.ones(1)])[0][0])
        finally:
            ring.close()

    with ThreadPoolExecutor(len(listeners)) as pool:
        assert list(pool.map(join, range(len(listeners)))) == [len(listeners)] * len(listeners)


def timed(what: str, work: Callable[[], None]) -> None:
    started = time.monotonic()
    work()
    seconds = time.monotonic() - started
    print(f"{what}: {seconds:.2f} s")
    assert seconds < WITHIN


@pytest.fixture
def usual_limit() -> Iterator[None]:
    """Have 1,024 open files, as most systems do: the flood then has more connections than there is room for."""
    with limited_files(1024):
        yield


@pytest.mark.alone
@pytest.mark.fault
def test_a_flood_of_silent_connections_locks_nobody_out_of_the_hub(usual_limit: None) -> None:
    with contextlib.closing(Hub("127.0.0.1", KEY, 10)) as hub, flood(hub.port):

        def join_all() -> None:
            for rank in range(10):
                dial(
                    ("127.0.0.1", hub.port), KEY, rank, "h", deadlines.HANDSHAKE_TIMEOUT, busy_timeout=WITHIN
                ).close()
            while not isinstance(hub.events.get(timeout=WITHIN), Gone):
                pass

        timed("10 nodes joined the hub in a flood", join_all)


@pytest.mark.alone
@pytest.mark.fault
def test_a_flood_of_silent_connections_locks_nobody_out_of_the_ring(usual_limit: None) -> None:
    listeners = [Ring.listen("127.0.0.1") for _ in range(3)]
    with contextlib.ExitStack() as floods:
        for listener in listeners[:2]:
            floods.enter_context(flood(listener.sock.getsockname()[1]))
        timed("3 ranks joined the ring in two floods", lambda: join_ring(listeners))
        for listener in listeners:
            listener.close()


@pytest.mark.alone
@pytest.mark.fault
def test_a_flood_of_silent_connections_locks_nobody_out_of_the_periodic_server(usual_limit: None) -> None:
    listener = sockets.listen("127.0.0.1")
    port = listener.getsockname()[1]
    server = PeriodicServer(listener, index=0, workers=1, key=KEY).start()
    with contextlib.closing(server), flood(port):
        client = PeriodicClient([f"127.0.0.1:{port}"], key=KEY, rank=0)
        spec, values = VariableSpec(size=1, dtype="float64", rule="delta"), [np.ones(1)]
        timed(
            "a worker opened in a flood",
            lambda: np.copyto(values[0], client.open([spec], values, "delta")[0]),
        )
        client.leave()
        assert server.report()["refused"] > 0


@pytest.mark.alone
def test_a_flood_of_silent_connections_locks_nobody_out_of_a_threaded_server(usual_limit: None) -> None:
    """What the row server is made of; tests/tensorflow/test_row_exchange.py has the server itself."""
    listener = sockets.listen("127.0.0.1")
    port = listener.getsockname()[1]

    def echo(connection: ArrayConnection) -> None:
        kind, fields, _ = connection.receive()
        connection.send(kind, fields)

    server = ThreadedServer(listener, key=KEY, purpose=PURPOSE, handle=echo)
    server.start()
    with contextlib.closing(server), flood(port):

        def ask() -> None:
            for number in range(5):
                connection = ArrayConnection(sockets.dial("127.0.0.1", port, KEY, PURPOSE, WITHIN))
                connection.send(1, {"number": number})
                assert connection.receive() == (1, {"number": number}, 0)
                connection.close()

        timed("5 answers in a flood", ask)
