import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from emberflow._feed.arrays import KEY
from emberflow._feed.feed_progress import Progress
from emberflow._feed.handover import receive_batches, receive_spool, send_batches, send_spool
from emberflow._feed.named_data import split_named
from emberflow._feed.spool import Spool, SpoolWriter
from emberflow.errors import DataError
from tests.leaks import descriptors_in

DEADLINE = 20.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    one.settimeout(DEADLINE)
    other.settimeout(DEADLINE)
    with one, other:
        yield one, other


def batch_of(start: int, rows: int = 100) -> Any:
    return pa.RecordBatch.from_pydict({KEY: range(start, start + rows), "x": [float(start)] * rows})


def test_a_spool_goes_over_by_its_descriptor(tmp_path: Path, pair: Any) -> None:
    names = {}
    for name in ("train", "validation"):
        with SpoolWriter(tmp_path) as writer:
            writer.write(batch_of(5))
            file = writer.finish()
        send_spool(pair[0], name, file)
        file.close()  # the sender is done with it; the file lives on in the socket
        received, there = receive_spool(pair[1])
        names[received] = Spool(there).rows
        there.close()
    assert names == {"train": 100, "validation": 100}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sent", [b"", b"\0\0", (50).to_bytes(8, "big") + b"[1", (2).to_bytes(8, "big") + b"[]"]
)
def test_a_handover_that_ends_early_is_an_error(pair: Any, sent: bytes) -> None:
    pair[0].sendall(sent)
    pair[0].close()
    with pytest.raises((DataError, ValueError)):
        receive_spool(pair[1])


def test_a_stream_arrives_whole_and_holds_its_sender_back(pair: Any) -> None:
    progress, asked = Progress(), 0
    paused = threading.Event()

    def source() -> Iterator[Any]:
        nonlocal asked
        for number in range(200):
            asked = number
            if number == 190:
                paused.set()
            yield batch_of(number * 100)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(send_batches, pair[0], source(), progress)
        received = receive_batches(pair[1])
        rows = [next(received).column(KEY)[0].as_py()]
        # Nothing more is read: the socket holds some batches, and then the sender must stand still.
        assert not paused.wait(0.3)
        assert asked < 190
        rows += [batch.column(KEY)[0].as_py() for batch in received]
        done.result(DEADLINE)
    assert rows == [number * 100 for number in range(200)]
    assert (progress.rows, progress.waiting_for) == (20_000, "sink")


def test_a_stream_without_rows_is_empty(pair: Any) -> None:
    send_batches(pair[0], [])
    assert list(receive_batches(pair[1])) == []


@pytest.mark.parametrize("kept", [1, 100, 1000, -8, -1])
def test_a_stream_that_breaks_off_is_an_error(pair: Any, kept: int) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch_of(0).schema) as writer:
        writer.write_batch(batch_of(0))
        writer.write_batch(batch_of(100))
    pair[0].sendall(sink.getvalue().to_pybytes()[:kept])
    pair[0].close()
    with pytest.raises(DataError, match="must be complete"):
        list(receive_batches(pair[1]))


def test_a_reader_that_is_gone_ends_the_sender(pair: Any) -> None:
    pair[1].close()
    with pytest.raises(BrokenPipeError):
        send_batches(pair[0], (batch_of(number) for number in range(1000)))


def test_named_rows_are_told_apart() -> None:
    train = pa.struct([("x", pa.int64()), ("s", pa.struct([("y", pa.string())]))])
    other = pa.struct([("x", pa.float64())])
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([1, 2, 3]),
            pa.array([{"x": 1, "s": {"y": "a"}}, None, {"x": None, "s": None}], train),
            pa.array([None, {"x": 0.5}, None], other),
            pa.nulls(3, other),
        ],
        [KEY, "train", "validation", "test"],
    )
    parts = split_named(rows, ["train", "validation", "test"])
    assert {name: part.to_pylist() for name, part in parts.items()} == {
        "train": [{KEY: 1, "x": 1, "s": {"y": "a"}}, {KEY: 3, "x": None, "s": None}],
        "validation": [{KEY: 2, "x": 0.5}],
    }
    sliced = split_named(rows.slice(1), ["train", "validation"])
    assert sliced["train"].to_pylist() == [{KEY: 3, "x": None, "s": None}]


def test_descriptors_are_not_leaked_by_a_broken_handover(tmp_path: Path, pair: Any) -> None:
    with SpoolWriter(tmp_path) as writer:
        file = writer.finish()
    assert descriptors_in(tmp_path) == 1
    socket.send_fds(pair[0], [(9).to_bytes(8, "big")], [file.fd])
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(DataError):
        receive_spool(pair[1])
    assert descriptors_in(tmp_path) == 1
    os.close(file.fd)
