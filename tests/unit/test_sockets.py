"""Where sockets listen and how they are dialled: names, IPv6, ranges of ports, and clear errors."""

import contextlib
import logging
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberflow._node.held_port import held_port
from emberflow._protocol import sockets
from emberflow._protocol.acceptor import Acceptor
from emberflow._protocol.handshake import HandshakeClosedError
from emberflow.errors import ClusterError, PeerError
from emberflow.strategies.transport.ring import Ring
from tests.unit.unauthenticated_peers import open_files

KEY = b"k" * 32
WITHIN = 10.0
NOT_OURS = "192.0.2.1"  # reserved for documentation: it is nobody's


@pytest.fixture
def few_ports() -> Iterator[tuple[int, int]]:
    """Return four ports in a row that are free, below those that the kernel gives to others."""
    for first in range(20_000, 30_000, 4):
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in range(first, first + 4):
                held.enter_context(socket.create_server(("", port)))
            held.close()
            yield first, first + 3
            return


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]"])
def test_a_host_is_listened_on_and_dialled_by_its_own_name(host: str) -> None:
    listener = sockets.listen(host)
    assert listener.getsockname()[0] in ("127.0.0.1", "::1")
    address = sockets.address_of(host, listener.getsockname()[1])
    admitted: queue.Queue[socket.socket] = queue.Queue()
    with contextlib.closing(Acceptor(listener, key=KEY, purpose="p", admit=admitted.put)):
        with sockets.dial(*sockets.host_and_port(address), KEY, "p", WITHIN):
            admitted.get(timeout=WITHIN).close()
        with sockets.dial(host, listener.getsockname()[1], KEY, "p", WITHIN):
            admitted.get(timeout=WITHIN).close()


def test_a_ring_is_joined_over_ipv6() -> None:
    listeners = [Ring.listen("[::1]") for _ in range(2)]
    addresses = [listener.address for listener in listeners]
    assert all(address.startswith("[::1]:") for address in addresses)
    rings = []
    threads = [
        threading.Thread(
            target=lambda rank=rank: rings.append(
                Ring.connect(listeners[rank], rank=rank, addresses=addresses, key=KEY, timeout=WITHIN)
            )
        )
        for rank in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rings) == 2
    for ring in rings:
        ring.close()


@pytest.mark.fault
@pytest.mark.parametrize("host", ["no-such-host.invalid", "[::1", "2001:db8::zz", "a" * 300])
def test_an_unknown_host_is_an_error_and_not_all_interfaces(host: str) -> None:
    with pytest.raises(ClusterError, match="must be known on this machine") as caught:
        sockets.listen(host)
    assert repr(host) in caught.value.problem


@pytest.mark.parametrize(
    ("host", "family", "everywhere"),
    [(NOT_OURS, socket.AF_INET, "0.0.0.0"), ("[2001:db8::1]", socket.AF_INET6, "::")],
)
def test_an_address_of_another_machine_means_all_interfaces_and_one_line(
    host: str, family: int, everywhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "emberflow"), sockets.listen(host) as listener:
        assert listener.family == family
        assert listener.getsockname()[0] == everywhere
    (record,) = caplog.records
    assert f"{host} is not an address of this machine" in record.getMessage()


def test_all_sockets_of_a_host_share_a_range_and_none_gets_anothers_port(few_ports: tuple[int, int]) -> None:
    first, last = few_ports
    with contextlib.ExitStack() as held:
        ports = []
        for make in (held_port, held_port):
            mine = make(few_ports)
            held.callback(mine.close)
            ports.append(mine.port)
        for _ in range(2):
            listener = held.enter_context(sockets.listen("127.0.0.1", ports=few_ports))
            ports.append(listener.getsockname()[1])
        assert sorted(ports) == list(range(first, last + 1))
        for attempt in (
            lambda: sockets.listen("127.0.0.1", ports=few_ports, what="the ring"),
            lambda: held_port(few_ports, "the ring"),
        ):
            with pytest.raises(ClusterError) as caught:
                attempt()
            assert f"between {first} and {last} must be free for the ring" in caught.value.problem
            assert f"port_range='{first}-{last}'" in caught.value.problem
            assert "wider port_range" in caught.value.fix
        # TensorFlow binds the port that is held for it.
        held.enter_context(socket.create_server(("0.0.0.0", ports[0])))


def test_a_port_that_another_process_holds_is_left_alone(few_ports: tuple[int, int]) -> None:
    first, last = few_ports
    code = (
        "from emberflow._node.held_port import held_port\n"
        f"held = held_port(({first}, {last}))\n"
        "print(held.port, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            assert other.stdout is not None
            theirs = int(other.stdout.readline())
            with contextlib.ExitStack() as held:
                mine = [
                    held.enter_context(sockets.listen("127.0.0.1", ports=few_ports)).getsockname()[1]
                    for _ in range(last - first)
                ]
                assert theirs not in mine
                with pytest.raises(ClusterError):
                    sockets.listen("127.0.0.1", ports=few_ports)
        finally:
            other.kill()
    sockets.listen("127.0.0.1", ports=(theirs, theirs)).close()  # free again with the process


def test_a_port_that_served_a_moment_ago_can_be_had_again(few_ports: tuple[int, int]) -> None:
    one = (few_ports[0], few_ports[0])
    for _ in range(3):
        admitted: queue.Queue[socket.socket] = queue.Queue()
        listener = sockets.listen("127.0.0.1", ports=one)
        with contextlib.closing(Acceptor(listener, key=KEY, purpose="p", admit=admitted.put)):
            client = sockets.dial("127.0.0.1", one[0], KEY, "p", WITHIN)
            admitted.get(timeout=WITHIN).close()  # the server closes first, and the kernel remembers it
            client.close()


@pytest.mark.alone
def test_nobody_there_is_an_error_at_once_and_somebody_else_at_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(ConnectionRefusedError):
        sockets.dial("127.0.0.1", port, KEY, "p", WITHIN, busy_timeout=WITHIN)
    assert time.monotonic() - started < 1

    def slam(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=slam, args=(listener,))
    thread.start()
    started = time.monotonic()
    with pytest.raises(HandshakeClosedError):  # it is not ours, so busy_timeout does not count
        sockets.dial("127.0.0.1", listener.getsockname()[1], KEY, "p", 0.5, busy_timeout=60)
    assert time.monotonic() - started < 3
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.alone
def test_whoever_is_greeted_and_turned_away_tries_again_as_long_as_its_patience_lasts() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    came = []

    def busy() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                came.append(time.monotonic())
                sock.sendall(b"emberflow/1\n" + bytes(32))
                sock.recv(64)
                sock.close()

    thread = threading.Thread(target=busy)
    thread.start()
    started = time.monotonic()
    with pytest.raises(PeerError, match="closed the connection during the handshake"):
        sockets.dial("127.0.0.1", listener.getsockname()[1], KEY, "p", 0.2, busy_timeout=1.5)
    assert 0.5 < time.monotonic() - started < 4
    assert 4 < len(came) < 30
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_nothing_waits_with_select_which_fails_above_descriptor_1024() -> None:
    source = Path(sockets.__file__).parent.parent
    files = [
        path
        for path in source.rglob("*.py")
        if re.search(r"\bselect\.select\(|SelectSelector", path.read_text())
    ]
    assert files == []


def test_what_can_be_read_is_told_above_descriptor_1024() -> None:
    with open_files(4096), contextlib.ExitStack() as held:
        for _ in range(1100):
            held.enter_context(socket.socket())
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert ours.fileno() > 1024
            assert sockets.readable([ours, theirs], 0.0) == []
            theirs.send(b"x")
            assert sockets.readable([theirs, ours], WITHIN) == [ours]
