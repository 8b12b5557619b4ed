"""The keyed handshake: only a holder of the key gets in, and nobody is kept waiting by a stranger."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from emberflow._wire.handshake import admitted, prove_as_client, prove_as_server
from emberflow.errors import PeerError

KEY = b"k" * 32


def meet(client: Callable[[socket.socket], None], server: Callable[[socket.socket], None]) -> tuple[str, str]:
    """Run both sides on a socket pair; return what each raised."""
    ends = socket.socketpair()

    def run(side: Callable[[socket.socket], None], sock: socket.socket) -> str:
        with sock:
            try:
                side(sock)
            except PeerError as error:
                return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        client_said, server_said = pool.map(run, (client, server), ends)
    return client_said, server_said


def test_both_sides_pass_with_the_same_key_and_purpose() -> None:
    assert meet(lambda s: prove_as_client(s, KEY, "ring"), lambda s: prove_as_server(s, KEY, "ring")) == (
        "",
        "",
    )


@pytest.mark.parametrize(("key", "purpose"), [(b"x" * 32, "ring"), (KEY, "feed")])
def test_another_key_or_purpose_is_refused_on_both_sides(key: bytes, purpose: str) -> None:
    client, server = meet(
        lambda s: prove_as_client(s, key, purpose), lambda s: prove_as_server(s, KEY, "ring")
    )
    assert "refused" in server
    assert client


def test_a_server_without_the_key_is_refused_by_the_client() -> None:
    def impostor(sock: socket.socket) -> None:
        sock.sendall(b"emberflow/1\n" + b"n" * 32)
        sock.recv(64)
        sock.sendall(b"t" * 32)

    client, _ = meet(lambda s: prove_as_client(s, KEY, "ring"), impostor)
    assert "another key" in client


def test_an_answer_cannot_be_reflected() -> None:
    def mirror(sock: socket.socket) -> None:
        hello = sock.recv(1024)
        sock.sendall(hello[-32:] + b"t" * 32)

    _, server = meet(mirror, lambda s: prove_as_server(s, KEY, "ring"))
    assert "refused" in server


def test_a_dripping_client_is_dropped_at_the_limit() -> None:
    def drip(sock: socket.socket) -> None:
        quit_drip = threading.Event()
        while not quit_drip.wait(0.02):
            try:
                sock.sendall(b".")
            except OSError:
                return

    start = time.monotonic()
    _, server = meet(drip, lambda s: prove_as_server(s, KEY, "ring", limit=0.3))
    assert "within 0.3 s" in server
    assert time.monotonic() - start < 2


def test_the_socket_keeps_its_own_timeout() -> None:
    ends = socket.socketpair()
    ends[0].settimeout(7.0)
    with ends[0], ends[1], ThreadPoolExecutor(1) as pool:
        other = pool.submit(prove_as_server, ends[1], KEY, "ring")
        prove_as_client(ends[0], KEY, "ring")
        other.result()
        assert ends[0].gettimeout() == 7.0
        assert ends[1].gettimeout() is None


def test_silent_strangers_do_not_keep_a_peer_waiting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        strangers = [socket.create_connection(address) for _ in range(5)]

        def join() -> None:
            with socket.create_connection(address) as sock:
                prove_as_client(sock, KEY, "ring")

        with ThreadPoolExecutor(1) as pool:
            start = time.monotonic()
            peer = pool.submit(join)
            connections = admitted(listener, lambda s: prove_as_server(s, KEY, "ring"), timeout=5)
            next(connections).close()
            assert time.monotonic() - start < 1
            peer.result()
            connections.close()  # type: ignore[attr-defined]
        for stranger in strangers:
            stranger.settimeout(1)
            assert len(stranger.recv(64)) == 44  # the greeting, then the door is shut
            assert stranger.recv(64) == b""
            stranger.close()


def test_the_door_ends_at_its_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        start = time.monotonic()
        assert list(admitted(listener, lambda s: prove_as_server(s, KEY, "ring"), timeout=0.2)) == []
        assert 0.15 < time.monotonic() - start < 1
