"""The handshake: only a holder of the key gets in, and nobody is kept waiting by a stranger."""

import contextlib
import queue
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from emberflow._protocol.acceptor import Acceptor
from emberflow._protocol.handshake import HandshakeClosedError, HandshakeTimeoutError, prove_as_client
from emberflow._protocol.sockets import listen
from emberflow.errors import PeerError

KEY = b"k" * 32
WITHIN = 10.0


class Service:
    """An acceptor for the ring, and those it let in."""

    def __init__(self) -> None:
        self.admitted: queue.Queue[socket.socket] = queue.Queue()
        listener = listen("127.0.0.1")
        self.address = listener.getsockname()
        self.acceptor = Acceptor(listener, key=KEY, purpose="ring", admit=self.admitted.put)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=WITHIN)


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    with contextlib.closing(service.acceptor):
        yield service


def client_against(server: Callable[[socket.socket], object]) -> None:
    """Prove the key as a client to somebody who does as it likes."""
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        other = pool.submit(server, theirs)
        try:
            prove_as_client(ours, KEY, "ring", limit=0.5)
        finally:
            ours.close()
            other.result()


def test_both_sides_pass_with_the_same_key_and_purpose(service: Service) -> None:
    with service.connect() as sock:
        prove_as_client(sock, KEY, "ring")
        service.admitted.get(timeout=WITHIN).close()


@pytest.mark.parametrize(("key", "purpose"), [(b"x" * 32, "ring"), (KEY, "feed")])
def test_another_key_or_purpose_is_refused_on_both_sides(service: Service, key: bytes, purpose: str) -> None:
    with service.connect() as sock, pytest.raises(PeerError, match="refused: it holds another key"):
        prove_as_client(sock, key, purpose)
    assert service.admitted.empty()
    assert service.acceptor.refused == 1


def test_a_server_without_the_key_is_refused_by_the_client() -> None:
    def impostor(sock: socket.socket) -> None:
        sock.sendall(b"emberflow/1\n" + b"n" * 32)
        sock.recv(64)
        sock.sendall(b"t" * 32)

    with pytest.raises(PeerError, match="another key"):
        client_against(impostor)


def test_another_program_is_told_from_a_busy_one_and_from_a_silent_one() -> None:
    with pytest.raises(PeerError, match="uses another protocol"):
        client_against(lambda sock: sock.sendall(b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 40))
    with pytest.raises(HandshakeClosedError) as closed:
        client_against(lambda sock: sock.close())
    assert not closed.value.is_ours
    with pytest.raises(HandshakeClosedError) as busy:
        client_against(lambda sock: (sock.sendall(b"emberflow/1\n" + b"n" * 32), sock.recv(64), sock.close()))
    assert busy.value.is_ours
    with pytest.raises(HandshakeTimeoutError, match=r"within 0\.5 s"):
        client_against(lambda sock: sock.recv(1))


def test_an_answer_cannot_be_reflected(service: Service) -> None:
    with service.connect() as mirror:
        greeting = mirror.recv(1024)
        mirror.sendall(greeting[-32:] + b"t" * 32)
        assert mirror.recv(1024) == bytes(32)
    assert service.admitted.empty()


def test_the_socket_keeps_its_own_timeout(service: Service) -> None:
    with service.connect() as sock:
        sock.settimeout(7.0)
        prove_as_client(sock, KEY, "ring")
        assert sock.gettimeout() == 7.0
        service.admitted.get(timeout=WITHIN).close()
