"""Rows of slow nodes for fast ones: each batch once, whoever takes it; strings and ragged rows too."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from emberflow._protocol.sealed import TamperedError
from emberflow.errors import PeerError
from tests.unit.unauthenticated_peers import flood, limited_files
from tests.unit.wire import Wire, changed

KEY = b"k" * 32
BATCH = 4


@contextmanager
def nodes(sizes: list[int], first_epoch: int = 0, exchange_timeout: float = 60.0) -> Iterator[list[Any]]:
    """Yield a source for each node, all of which know each other."""
    import tensorflow as tf
    from emberflow.strategies.parameter_server.row_exchange import PeerRows, RowServer
    from emberflow.strategies.parameter_server.row_sources import RowSource

    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in sizes]
    addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    sources, servers = [], []
    for rank, size in enumerate(sizes):
        numbers = tf.range(size, dtype=tf.int64) + 1000 * rank
        dataset = tf.data.Dataset.from_tensor_slices(numbers).batch(BATCH)
        dataset = dataset.map(
            lambda batch: {
                "number": batch,
                "text": tf.strings.as_string(batch),
                "ragged": tf.RaggedTensor.from_row_lengths(
                    tf.range(tf.reduce_sum(batch % 3)), tf.cast(batch % 3, tf.int64)
                ),
            }
        )
        peer_rows = PeerRows(addresses, key=KEY, rank=rank, exchange_timeout=exchange_timeout)
        source = RowSource("train", dataset, rank=rank, first_epoch=first_epoch, peer_rows=peer_rows)
        servers.append(RowServer(listeners[rank], key=KEY, rank=rank, takes={"train": source.take}))
        sources.append(source)
    for source, server, address in zip(sources, servers, addresses, strict=True):
        source.server, source.address = server, address
    try:
        yield sources
    finally:
        for server in servers:
            server.close()


def numbers_of(source: Any, fetched: list[Any]) -> list[int]:
    """Return the numbers of a batch, and see that its other columns belong to them."""
    import tensorflow as tf

    tensors = [tf.convert_to_tensor(leaf) for leaf in fetched[3:]]
    batch = tf.nest.pack_sequence_as(source.spec, tensors, expand_composites=True)
    numbers = batch["number"].numpy().tolist()
    assert [int(text) for text in batch["text"].numpy()] == numbers
    assert batch["ragged"].row_lengths().numpy().tolist() == [number % 3 for number in numbers]
    assert int(fetched[1]) == len(numbers)
    return numbers


def drain(source: Any, epoch: int) -> list[tuple[int, int]]:
    """Take all that a node can get in an epoch; return owner and number of each row."""
    rows = []
    while not (fetched := source.fetch(epoch))[2]:
        rows += [(int(fetched[0]), number) for number in numbers_of(source, fetched)]
    return rows


def test_a_node_takes_its_own_rows_first_and_then_those_that_others_have_left() -> None:
    with nodes([6, 0, 10]) as (first, _, third):
        early = third.fetch(0)
        mine = drain(first, 0)
        assert mine[:6] == [(0, number) for number in range(6)]
        assert {owner for owner, _ in mine[6:]} == {2}
        everything = sorted([number for _, number in mine] + numbers_of(third, early))
        assert everything == [*range(6), *range(2000, 2010)]
        assert drain(third, 0) == []
        assert sorted(number for _, number in drain(third, 1)) == everything  # the next epoch has all again


def test_nodes_that_take_at_the_same_time_get_each_row_once() -> None:
    with nodes([40, 3, 41]) as sources, ThreadPoolExecutor(3) as pool:
        for epoch in range(5):
            taken = [row for rows in pool.map(drain, sources, [epoch] * 3) for row in rows]
            assert sorted(number for _, number in taken) == [
                *range(40),
                *range(1000, 1003),
                *range(2000, 2041),
            ]


def test_a_resumed_node_has_nothing_before_its_first_epoch() -> None:
    with nodes([4, 4], first_epoch=3) as (first, _):
        assert drain(first, 2) == []
        assert len(drain(first, 3)) == 8


@pytest.mark.fault
def test_a_node_that_is_gone_is_done_without() -> None:
    with nodes([4, 8]) as (first, second):
        second.server.close()
        assert drain(first, 0) == [(0, number) for number in range(4)]


@pytest.mark.fault
def test_a_node_that_does_not_answer_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    """A stopped process: its kernel takes the question, and nobody answers it."""
    with nodes([4, 8], exchange_timeout=0.5) as (first, second):
        with second._lock:
            assert drain(first, 0) == [(0, number) for number in range(4)]
        assert f"Rank 1 at {second.address} gives no more rows: it did not answer for 0.5 s" in caplog.text
        assert "exchange_timeout" in caplog.text


@pytest.mark.fault
def test_an_unauthenticated_node_gets_no_rows() -> None:
    from emberflow.strategies.parameter_server.row_exchange import PeerRows

    with nodes([4]) as (only,):
        stranger = PeerRows([only.address], key=b"x" * 32, rank=0)
        stranger._addresses = {0: only.address}
        with pytest.raises(PeerError):
            stranger._request(0, "train", 0, [])
        assert len(drain(only, 0)) == 4


@pytest.mark.fault
def test_a_flood_of_silent_connections_locks_nobody_out_of_a_row_server() -> None:
    with (
        limited_files(1024),
        nodes([0, 10]) as (first, second),
        flood(int(second.address.rpartition(":")[2])),
    ):
        assert drain(first, 0) == [(1, number) for number in range(1000, 1010)]


@contextmanager
def neighbour(*, encrypt: bool) -> Iterator[tuple[Any, Wire]]:
    """Yield a node's way to the rows of another, with somebody between them."""
    import tensorflow as tf
    from emberflow.strategies.parameter_server.row_exchange import PeerRows, RowServer

    listener = socket.create_server(("127.0.0.1", 0))
    rows = [tf.constant(["a row of somebody else"] * BATCH)]
    server = RowServer(listener, key=KEY, rank=1, takes={"train": lambda _: (BATCH, rows)}, encrypt=encrypt)
    with Wire(listener.getsockname()[1]) as wire:
        yield PeerRows(["127.0.0.1:1", wire.address], key=KEY, rank=0, encrypt=encrypt), wire
    server.close()


def test_rows_cannot_be_read_on_the_way_of_an_encrypted_run() -> None:
    import tensorflow as tf

    seen = {}
    for encrypt in (False, True):
        with neighbour(encrypt=encrypt) as (peer_rows, wire):
            owner, rows, (text,) = peer_rows.take("train", 0, [tf.string])
            assert (owner, rows, text.numpy()[0]) == (1, BATCH, b"a row of somebody else")
            seen[encrypt] = bytes(wire.seen)
    assert b"a row of somebody else" in seen[False]  # the wire does see what passes
    assert b"somebody" not in seen[True]


@pytest.mark.fault
def test_a_batch_that_was_altered_is_an_error_that_names_its_node_and_not_a_lost_batch() -> None:
    import tensorflow as tf

    with neighbour(encrypt=True) as (peer_rows, wire):
        peer_rows.take("train", 0, [tf.string])
        wire.to_client = changed
        with pytest.raises(TamperedError, match=wire.address):
            peer_rows.take("train", 0, [tf.string])
