"""Large values between tasks and driver: whole, from file to file, and never a wait without an end."""

import contextlib
import dataclasses
import os
import pickle
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from emberflow._driver import value_server as values_module
from emberflow._driver.events import Events, Undelivered
from emberflow._driver.hub import Hub
from emberflow._driver.shipping import INLINE_LIMIT, Shipment, shipment_of
from emberflow._driver.value_server import ValueServer, drop_stored, fetch_stored
from emberflow._plan.plan import CheckpointPlan, RunPlan
from emberflow._protocol.file_transfer import VALUE, receive_size, send_request, send_size
from emberflow._protocol.outcome import Ending, ValueRoute
from emberflow._protocol.sealed_file import LocalFile, SealedWriter
from emberflow._task.driver_connection import dial_values
from emberflow._task.value_client import ValueClient, ValuePlan, value_path
from emberflow.errors import ClusterError, EmberflowError, StorageError
from tests.unit.nodes import KEY, WITHIN, outcome_of, plan_of

MB = 1 << 20
NOTHING = Shipment(size=0)


def holding(data: bytes) -> Callable[[Any], bytes]:
    return lambda _: data


def dialled_plan(port: int, **more: Any) -> RunPlan:
    return dataclasses.replace(plan_of(2, **more), driver_address=("127.0.0.1", port))


class Driver:
    """A value server and its events."""

    def __init__(self, shipment: Shipment, timeout: float) -> None:
        self.events: Events = queue.Queue()
        self.hub = Hub("127.0.0.1", KEY, 2)
        self.server = ValueServer(timeout=timeout, shipment=shipment, events=self.events)
        self.hub.on_values = self.server.admit
        self.shipment = shipment

    def delivery(
        self, rank: int = 0, key: bytes = KEY, encrypts_files: bool = False, **more: Any
    ) -> ValueClient:
        size = 0 if self.shipment.data else self.shipment.size
        told = ValuePlan(function_bytes=size, **more)
        plan = dialled_plan(self.hub.port, encrypts_files=encrypts_files)
        return ValueClient(told, plan, key, rank, has_driver=True)


@contextlib.contextmanager
def driver(shipment: Shipment = NOTHING, timeout: float = WITHIN) -> Iterator[Driver]:
    running = Driver(shipment, timeout)
    try:
        yield running
    finally:
        running.server.close()
        running.hub.close()
        for thread in [thread for thread in threading.enumerate() if thread.name == "emberflow-values"]:
            thread.join(1.0)  # one that ended by itself just now needs a moment
            assert not thread.is_alive()


@contextlib.contextmanager
def value_of(data: bytes) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file


def test_a_large_function_is_pickled_into_a_file_and_every_task_gets_all_of_it(tmp_path: Path) -> None:
    data = os.urandom(INLINE_LIMIT + 5)
    with contextlib.closing(shipment_of(holding(data), is_connect=False)) as shipment:
        assert shipment.data == b""
        assert shipment.size > len(data)
        with driver(shipment) as running:
            for rank in range(3):
                folder = tmp_path / str(rank)
                folder.mkdir()
                with contextlib.closing(running.delivery(rank)) as delivery:
                    file = delivery.fetch_function(folder)
                assert file is not None
                path = Path(file.path)
                assert pickle.loads(path.read_bytes())(None) == data
                assert path.stat().st_mode & 0o777 == 0o600
        assert shipment.read() == path.read_bytes()


def test_where_files_are_encrypted_the_function_is_and_only_its_key_opens_it(tmp_path: Path) -> None:
    data = os.urandom(64) * (INLINE_LIMIT // 64 + 1)
    with (
        contextlib.closing(shipment_of(holding(data), is_connect=False)) as shipment,
        driver(shipment) as running,
        contextlib.closing(running.delivery(encrypts_files=True)) as delivery,
    ):
        file = delivery.fetch_function(tmp_path)
    assert file is not None
    assert data[:64] not in Path(file.path).read_bytes()
    with file.open() as opened:
        assert pickle.load(opened)(None) == data
    with pytest.raises(StorageError, match="must be read as it was written"):
        dataclasses.replace(file, key=bytes(16)).open().read()
    assert repr(file.key) not in repr(file)


def test_a_large_value_that_is_encrypted_on_disk_arrives_as_it_was(tmp_path: Path) -> None:
    data = os.urandom(3 * MB + 3)
    with (tmp_path / "value").open("wb") as file:
        sealed = SealedWriter(file.fileno())
        sealed.write(data)
        sealed.finish()
    kept = LocalFile(path=file.name, size=len(data), key=sealed.key)
    with driver() as running, contextlib.closing(running.delivery()) as delivery, kept.open() as value:
        assert delivery.deliver(value, len(data)) == (Ending.RETURNED, {"value_route": ValueRoute.DRIVER})
        with running.server.take(0) as taken:
            assert taken.read() == data


def test_a_small_function_goes_with_the_orders_and_needs_no_connection(tmp_path: Path) -> None:
    shipment = shipment_of(lambda _: 7, is_connect=False)
    assert pickle.loads(shipment.data)(None) == 7
    assert ValueClient(ValuePlan(), plan_of(2), KEY, 1).fetch_function(tmp_path) is None


def test_a_large_value_comes_whole_after_the_function_on_the_same_connection(tmp_path: Path) -> None:
    data = os.urandom(5 * MB + 3)
    with (
        contextlib.closing(shipment_of(holding(bytes(INLINE_LIMIT)), is_connect=False)) as shipment,
        driver(shipment) as running,
        contextlib.closing(running.delivery()) as delivery,
        value_of(data) as value,
    ):
        delivery.fetch_function(tmp_path)
        assert delivery.deliver(value, len(data)) == (Ending.RETURNED, {"value_route": ValueRoute.DRIVER})
        with running.server.take(0) as taken:
            assert os.fstat(taken.fileno()).st_nlink == 0  # no name: nothing can be left behind
            assert taken.read() == data
        assert running.events.empty()


def test_a_value_that_nobody_takes_goes_with_the_server() -> None:
    with (
        driver() as running,
        contextlib.closing(running.delivery()) as delivery,
        value_of(bytes(2 * MB)) as value,
    ):
        delivery.deliver(value, 2 * MB)
        held = running.server._received[0]
    assert held.closed


@pytest.mark.fault
def test_a_task_that_stops_in_the_middle_is_told_with_its_rank_within_the_timeout() -> None:
    with driver(timeout=1.0) as running, dial_values(("127.0.0.1", running.hub.port), KEY, WITHIN) as sock:
        receive_size(sock)
        send_request(sock, VALUE, 0, 3 * MB)
        sock.send_chunks(memoryview(bytes(MB)))
        event = running.events.get(timeout=WITHIN)
    assert isinstance(event, Undelivered)
    assert (event.rank, event.exception_type) == (0, "NodeLostError")
    assert "of 3,145,728 bytes received, and nothing for 1 s (exchange_timeout)" in event.problem


@pytest.mark.fault
def test_a_driver_that_stops_in_the_middle_is_told_by_the_task_within_the_timeout() -> None:
    admitted: queue.Queue[socket.socket] = queue.Queue()

    def greet(sock: socket.socket) -> None:
        send_size(sock, 0)
        admitted.put(sock)

    hub = Hub("127.0.0.1", KEY, 2)
    hub.on_values = greet
    try:
        plan = dialled_plan(hub.port, exchange_timeout=0.3)
        delivery = ValueClient(ValuePlan(), plan, KEY, 0, has_driver=True)
        with contextlib.closing(delivery), value_of(bytes(64 * MB)) as value:
            ending, known = delivery.deliver(value, 64 * MB)
        assert ending == "undelivered"
        error = outcome_of(0, ending, **known).error()
        assert "the driver does not take it, silent for 0.3 s (exchange_timeout)" in str(error)
        assert type(error).__name__ == "NodeLostError"
    finally:
        hub.close()
        admitted.get(timeout=WITHIN).close()


@pytest.mark.fault
def test_a_full_disk_on_the_driver_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_module, "spool", lambda: open("/dev/full", "wb"))  # noqa: PTH123, SIM115
    with (
        driver() as running,
        contextlib.closing(running.delivery()) as delivery,
        value_of(bytes(4 * MB)) as value,
    ):
        ending, _ = delivery.deliver(value, 4 * MB)
        event = running.events.get(timeout=WITHIN)
    assert ending == "undelivered"
    assert isinstance(event, Undelivered)
    assert (event.rank, event.exception_type) == (0, "StorageError")
    assert "No space left on device" in event.problem
    assert "TMPDIR" in event.fix


@pytest.mark.alone
def test_closing_the_server_ends_a_transfer_at_once() -> None:
    with driver() as running, dial_values(("127.0.0.1", running.hub.port), KEY, WITHIN) as sock:
        receive_size(sock)
        send_request(sock, VALUE, 0, 3 * MB)
        sock.send_chunks(memoryview(bytes(MB)))
        started = time.monotonic()
        running.server.close()
        assert time.monotonic() - started < 2
        assert running.events.empty()


def test_without_the_key_neither_the_function_nor_a_value_is_transferred(tmp_path: Path) -> None:
    with (
        contextlib.closing(shipment_of(holding(bytes(INLINE_LIMIT)), is_connect=False)) as shipment,
        driver(shipment) as running,
    ):
        other = running.delivery(key=b"another key" * 3)
        with pytest.raises(ClusterError, match=r"could not fetch your function of 8\.0 MB: it cannot reach"):
            other.fetch_function(tmp_path)
        assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("size", "limit", "fits"),
    [(MB, 1000, True), (2 * MB, 3 * MB, True), (2 * MB, 0, True), (3 * MB, 2 * MB, False)],
)
def test_without_a_driver_values_come_as_rows_up_to_sparks_limit(size: int, limit: int, fits: bool) -> None:
    delivery = ValueClient(ValuePlan(row_limit=limit), plan_of(2), KEY, 0)
    with value_of(bytes(size)) as value:
        ending, known = delivery.deliver(value, size)
    assert ending == ("returned" if fits else "undelivered")
    if not fits:
        error = outcome_of(0, ending, **known).error()
        assert isinstance(error, ClusterError)
        assert "3.0 MB are too large" in str(error)
        assert "spark.driver.maxResultSize" in error.fix


def stored_plan(folder: Path) -> RunPlan:
    own = CheckpointPlan(folder=str(folder), number=0, own=str(folder / "a"), resume_from=None, probe="")
    return plan_of(2, checkpoints=own)


def test_without_a_driver_a_large_value_comes_by_the_shared_folder(tmp_path: Path) -> None:
    plan, data = stored_plan(tmp_path), os.urandom(3 * MB)
    with value_of(data) as value:
        ending, known = ValueClient(ValuePlan(row_limit=MB), plan, KEY, 0).deliver(value, len(data))
    assert (ending, known["value_route"]) == (Ending.RETURNED, ValueRoute.STORAGE)
    with fetch_stored(plan, KEY, known["value_mac"]) as file:
        assert file.read() == data
    assert not any(tmp_path.iterdir())


def test_a_stored_value_that_was_changed_is_not_used(tmp_path: Path) -> None:
    plan = stored_plan(tmp_path)
    with value_of(bytes(3 * MB)) as value:
        _, known = ValueClient(ValuePlan(row_limit=MB), plan, KEY, 0).deliver(value, 3 * MB)
    Path(value_path(plan)).write_bytes(b"other code")
    with pytest.raises(StorageError, match="must be the value that the chief wrote"):
        fetch_stored(plan, KEY, known["value_mac"])
    drop_stored(plan)
    assert not any(tmp_path.iterdir())


def test_a_model_that_cannot_come_back_is_refused_before_anything_starts() -> None:
    told = ValuePlan(least_bytes=5 * MB, row_limit=2 * MB)
    with pytest.raises(EmberflowError, match=r"5.0 MB or more.* at most 2.0 MB") as caught:
        ValueClient(told, plan_of(2), KEY, 0).check()
    assert "checkpoint_dir" in caught.value.fix
    ValueClient(told, plan_of(2), KEY, 1).check()  # only the chief's comes back
    ValueClient(ValuePlan(least_bytes=5 * MB), plan_of(2), KEY, 0).check()
    with (
        driver() as running,
        contextlib.closing(running.delivery(least_bytes=5 * MB, row_limit=MB)) as dialled,
    ):
        dialled.check()
