"""The node's side of a live cluster: real sockets, no Spark and no processes."""

import contextlib
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from emberflow._feed.batch_connection import BatchConnection
from emberflow._feed.shard_facts import ShardFacts
from emberflow._feed.shards import merge_briefs
from emberflow._node.live_feeds import Round
from emberflow._node.node_spec import LiveSpec
from emberflow._protocol.byte_blocks import LENGTH
from emberflow._protocol.live_messages import (
    FeedClosed,
    FeedOpened,
    FeedsEnd,
    ReplyFollows,
    RequestsBegin,
    RoundBegin,
    RoundDone,
    RoundDropped,
    RoundReady,
    ShardSpooled,
)
from emberflow.errors import ClusterError, ConfigError, DataError, PeerError
from tests.unit.live_nodes import FedNode, batches_of, fed_node
from tests.unit.nodes import WITHIN
from tests.unit.wire import HANDSHAKE, Wire

pytestmark = pytest.mark.usefixtures("nothing_open")


def ready(number: int, token: str, *spooled: ShardSpooled, epochs: int = 1) -> RoundReady:
    """Be the driver: merge what the ranks know."""
    facts = [ShardFacts.from_json(each.facts["train"]) for each in spooled]
    blobs = {digest: blob for each in facts for digest, blob in each.blobs().items()}
    shards = merge_briefs("train", [each.brief() for each in facts], blobs)
    return RoundReady(number, epochs, token, {"train": shards}, 0)


def values_of(round_: Round) -> list[int]:
    return [value for batch in round_.arrow() for value in batch.column("x").to_pylist()]


def test_a_round_is_visible_when_the_driver_says_so(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        rounds = node.feeds.rounds()
        assert node.next_sent() == FeedOpened("rounds", "")
        node.feeds.on_message(ready(0, "a", node.bring(0, "a", range(25)), epochs=2))
        first, second = next(rounds), next(rounds)
        assert [(each.number, each.epoch, each.epochs, each.names) for each in (first, second)] == [
            (0, 0, 2, ("train",)),
            (0, 1, 2, ("train",)),
        ]
        assert values_of(first) == values_of(second) == list(range(25))
        assert first.rows() == 25
        node.feeds.on_message(FeedsEnd())
        assert next(rounds, None) is None
        assert node.next_sent() == RoundDone(0)


@pytest.mark.parametrize("by_tcp", [False, True], ids=["unix", "tcp"])
@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_rows_arrive_unchanged(tmp_path: Path, *, by_tcp: bool, encrypt: bool) -> None:
    with fed_node(tmp_path, encrypt=encrypt) as node:
        node.feeds.on_message(ready(0, "a", node.bring(0, "a", range(1000), by_tcp=by_tcp, size=7)))
        assert values_of(next(node.feeds.rounds())) == list(range(1000))


def test_rows_are_kept_encrypted_where_spark_encrypts_its_files(tmp_path: Path) -> None:
    with fed_node(tmp_path, encrypts_files=True) as node:
        node.feeds.on_message(ready(0, "a", node.bring(0, "a", range(1000), size=7), epochs=2))
        rounds, stream = node.feeds.rounds(), node.feeds.stream()
        assert values_of(next(rounds)) == values_of(next(rounds)) == list(range(1000))
        node.bring_partition(0, 0, range(1000, 2000))
        taken = stream.next(600), stream.next(600)
        assert [x for batch in taken for x in batch.column("x").to_pylist()] == list(range(1000, 2000))


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_what_passes_is_readable_without_encryption_only(tmp_path: Path, *, encrypt: bool) -> None:
    secret = b"do not read this on the way"
    with fed_node(tmp_path, encrypt=encrypt) as node:
        port = int(node.feeds.endpoint["feed"].rpartition(":")[2])
        with Wire(port) as wire:
            node.feeds.endpoint["feed"] = wire.address
            with contextlib.closing(node.dial(by_tcp=True)) as connection:
                connection.send(RoundBegin(0, "a", ("train",)))
                connection.send_stream([pa.RecordBatch.from_pydict({"x": [secret]})])
                assert isinstance(connection.receive(), ShardSpooled)
            assert (secret in bytes(wire.seen[HANDSHAKE:])) is not encrypt


def test_of_two_attempts_only_the_winner_is_seen(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(2) as pool:
        brought = [pool.submit(node.bring, 0, token, range(50), size=1) for token in ("first", "second")]
        winner = [each.result(WITHIN) for each in brought][1]
        node.feeds.on_message(ready(0, "second", winner))
        node.bring(0, "late", range(50))  # a copy that nobody needed ends after the driver's decision
        rounds = node.feeds.rounds()
        assert values_of(next(rounds)) == list(range(50))
        node.feeds.on_message(FeedsEnd())
        assert next(rounds, None) is None


def test_a_task_that_dies_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        open_before = psutil.Process().num_fds()
        connection = node.dial()
        connection.send(RoundBegin(0, "dead", ("train",)))
        for batch in batches_of(range(30)):
            connection.send_schema(batch.schema) if batch.column(0)[0].as_py() == 0 else None
            connection.send_batch(batch)
        connection.close()
        node.feeds.on_message(ready(0, "alive", node.bring(0, "alive", range(30))))
        rounds = node.feeds.rounds()
        assert values_of(next(rounds)) == list(range(30))
        rounds.close()
        await_fds(open_before)


def await_fds(most: int) -> None:
    """Wait until no more descriptors are open than before: the thread of a dead task closes its own."""
    pause = threading.Event()
    for _ in range(int(WITHIN / 0.02)):
        if psutil.Process().num_fds() <= most:
            return
        pause.wait(0.02)
    raise AssertionError(f"more than {most} descriptors are open")


def test_a_task_that_stops_in_the_middle_of_a_batch_is_left(tmp_path: Path) -> None:
    with fed_node(tmp_path, exchange_timeout=0.5) as node:
        sock = node.dial_socket()
        with contextlib.closing(BatchConnection(sock, WITHIN, encrypt=False)) as connection:
            connection.send(RoundBegin(0, "stopped", ("train",)))
            sock.send_record(LENGTH.pack(1000))
            sock.sendall(b"not all of it")
            assert sock.recv(1) == b""  # the node has closed the connection
        with contextlib.closing(node.dial()) as waiting:  # before a batch it may take as long as it wants
            waiting.send(RoundBegin(0, "slow", ("train",)))
            threading.Event().wait(1.0)
            waiting.send_stream(batches_of(range(10)))
            assert isinstance(waiting.receive(), ShardSpooled)


def test_a_dropped_round_is_never_seen(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        node.bring(0, "a", range(10))
        node.feeds.on_message(RoundDropped(0))
        node.feeds.on_message(ready(1, "b", node.bring(1, "b", range(10, 20))))
        assert values_of(next(node.feeds.rounds())) == list(range(10, 20))


def test_unauthenticated_and_silent_clients_hinder_nobody(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        host, _, port = node.feeds.endpoint["feed"].rpartition(":")
        with socket.create_connection((host, int(port))), contextlib.closing(node.dial()):
            for by_tcp in (False, True):
                with pytest.raises(PeerError):
                    node.dial(b"another key" * 3, by_tcp=by_tcp)
            node.feeds.on_message(ready(0, "a", node.bring(0, "a", range(10))))
            assert values_of(next(node.feeds.rounds())) == list(range(10))


def test_other_columns_than_before_are_refused(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        node.feeds.on_message(ready(0, "a", node.bring(0, "a", range(10))))
        next(node.feeds.rounds())
        with pytest.raises(DataError, match=r"Received: y: int64; before: x: int64"):
            node.bring(1, "b", range(10), name="y")
        node.bring(1, "c", range(10))


def test_columns_of_a_job_that_failed_do_not_bind(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        node.bring(0, "a", range(10), name="wrong")
        node.feeds.on_message(RoundDropped(0))
        node.feeds.on_message(ready(1, "b", node.bring(1, "b", range(10))))
        assert values_of(next(node.feeds.rounds())) == list(range(10))


def test_a_full_disk_is_told_to_the_task(tmp_path: Path) -> None:
    with fed_node(tmp_path, live=LiveSpec(spool_limit=1000)) as node:
        with pytest.raises(DataError, match="spool_limit=1000"):
            node.bring(0, "a", range(10_000_000), size=1_000_000)
        node.bring(0, "b", range(10))


def test_rounds_end_while_your_function_waits(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(1) as pool:
        waiting: Future[list[Any]] = pool.submit(lambda: list(node.feeds.rounds()))
        assert node.next_sent() == FeedOpened("rounds", "")
        node.feeds.on_message(FeedsEnd())
        assert waiting.result(WITHIN) == []


def test_leaving_the_loop_is_reported_and_the_round_with_the_next_feed(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        node.feeds.on_message(ready(0, "a", node.bring(0, "a", range(10)), epochs=3))
        for _ in node.feeds.rounds():
            break
        node.feeds.requests()
        assert [node.next_sent() for _ in range(4)] == [
            FeedOpened("rounds", ""),
            FeedClosed("rounds", "", 0),
            RoundDone(0),
            FeedOpened("requests", "infer"),
        ]


def test_a_round_of_one_thread_is_not_done_because_another_asks_for_requests(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(1) as pool:
        node.feeds.on_message(ready(0, "a", node.bring(0, "a", range(10))))
        rounds = node.feeds.rounds()
        assert next(rounds).number == 0
        pool.submit(node.feeds.requests).result(WITHIN)
        assert [node.next_sent(), node.next_sent()] == [
            FeedOpened("rounds", ""),
            FeedOpened("requests", "infer"),
        ]
        node.feeds.on_message(FeedsEnd())
        assert next(rounds, None) is None
        assert node.next_sent() == RoundDone(0)


def test_a_loop_that_one_thread_has_left_is_reported_by_the_next_feed_of_another(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(1) as pool:
        node.feeds.on_message(ready(0, "a", node.bring(0, "a", range(10)), epochs=3))
        for _ in node.feeds.rounds():
            break
        pool.submit(node.feeds.stream).result(WITHIN)
        assert [node.next_sent() for _ in range(4)] == [
            FeedOpened("rounds", ""),
            FeedClosed("rounds", "", 0),
            RoundDone(0),
            FeedOpened("stream", "train"),
        ]


def ask(node: FedNode, rows: range, name: str = "infer") -> list[Any]:
    """Be the task of an inference: ask for the results of these rows, batch by batch."""
    with contextlib.closing(node.dial()) as connection:
        connection.send(RequestsBegin(name))
        results: list[Any] = []
        for at, batch in enumerate(batches_of(rows)):
            if not at:
                connection.send_schema(batch.schema)
            connection.send_batch(batch)
            assert connection.receive() == ReplyFollows()
            results += [row for reply in connection.receive_stream() for row in reply.to_pylist()]
        connection.send_end()
        return results


def double(node: FedNode, requests: int, answer: Any = None) -> None:
    """Be your function, for so many requests."""
    for number, request in enumerate(node.feeds.requests(), 1):
        values = request.numpy()["x"]
        request.reply(answer(values) if answer else 2 * values)
        if number == requests:
            return


def test_requests_of_several_tasks_get_their_own_results(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(5) as pool:
        pool.submit(double, node, 40)
        assert node.next_sent() == FeedOpened("requests", "infer")
        parts = [pool.submit(ask, node, range(start, start + 100)) for start in (0, 100, 200, 300)]
        for start, part in zip((0, 100, 200, 300), parts, strict=True):
            assert part.result(WITHIN) == [{"prediction": 2 * x} for x in range(start, start + 100)]


@pytest.mark.parametrize(
    ("answer", "first"),
    [
        (lambda x: {"a": x, "b": x.astype(np.uint8)}, {"a": 3, "b": 3}),
        (lambda x: np.stack([x, x], axis=1).astype(np.float32), {"prediction": [3.0, 3.0]}),
        (lambda x: [str(each) for each in x], {"prediction": "3"}),
        (lambda x: pa.table({"t": x}), {"t": 3}),
        (lambda x: pa.RecordBatch.from_pydict({"r": x}), {"r": 3}),
        (lambda x: np.zeros((len(x), 2, 2), np.float16), {"prediction": [[0.0, 0.0], [0.0, 0.0]]}),
    ],
    ids=["dict", "matrix", "text", "table", "batch", "cube"],
)
def test_replies_in_every_form(tmp_path: Path, answer: Any, first: dict[str, Any]) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(1) as pool:
        pool.submit(double, node, 1, answer)
        assert node.next_sent() == FeedOpened("requests", "infer")
        assert ask(node, range(3, 6))[0] == first


@pytest.mark.parametrize("rows", [9, 11], ids=["fewer", "more"])
def test_a_reply_with_another_number_of_rows_is_an_error_of_the_task(tmp_path: Path, rows: int) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(1) as pool:
        served = pool.submit(double, node, 2, lambda x: np.zeros(rows) if x[0] == 0 else x)
        assert node.next_sent() == FeedOpened("requests", "infer")
        with pytest.raises(DataError, match=f"{rows} results for 10 rows"):
            ask(node, range(10))
        assert ask(node, range(1, 11)) == [{"prediction": x} for x in range(1, 11)]
        served.result(WITHIN)


def test_a_request_without_a_reply_is_an_error_of_the_task(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: [None for _ in node.feeds.requests()])
        assert node.next_sent() == FeedOpened("requests", "infer")
        with pytest.raises(DataError, match="no reply for 10 rows"):
            ask(node, range(10))
        node.feeds.on_message(FeedsEnd())


def test_the_results_of_a_task_that_is_gone_go_to_nobody(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(2) as pool:
        requests = node.feeds.requests()
        gone = node.dial()
        gone.send(RequestsBegin("infer"))
        (batch,) = batches_of(range(1000, 1010))
        gone.send_schema(batch.schema)
        gone.send_batch(batch)
        first = next(requests)
        asked = [pool.submit(ask, node, range(start, start + 10)) for start in (0, 10)]
        gone.close()
        first.reply(np.full(10, -1))
        for _, request in zip(range(2), requests, strict=False):
            request.reply(request.numpy("x")["x"])
        assert [each.result(WITHIN) for each in asked] == [
            [{"prediction": x} for x in range(start, start + 10)] for start in (0, 10)
        ]


def test_a_request_that_is_not_taken_and_whose_task_is_gone_is_skipped(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(1) as pool:
        requests = node.feeds.requests()
        gone = node.dial()
        gone.send(RequestsBegin("infer"))
        (batch,) = batches_of(range(1000, 1010))
        gone.send_schema(batch.schema)
        gone.send_batch(batch)
        next(requests).reply(np.zeros(10))  # the node has received this one
        assert gone.receive() == ReplyFollows()
        gone.send_batch(batch)
        gone.close()
        asked = pool.submit(ask, node, range(10))
        request = next(requests)
        while request.numpy("x")["x"][0] == 1000:  # taken before its task was seen to be gone
            request.reply(np.zeros(10))
            request = next(requests)
        request.reply(request.numpy("x")["x"])
        assert asked.result(WITHIN) == [{"prediction": x} for x in range(10)]


def test_requests_of_a_name_that_nobody_asks_for_are_refused(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        node.feeds.requests("infer")
        with pytest.raises(ConfigError, match="Received: 'other'; there are: infer"):
            ask(node, range(10), "other")


def test_what_your_function_raised_reaches_the_task_that_waits(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(1) as pool:
        requests = node.feeds.requests()
        asked = pool.submit(ask, node, range(10))
        next(requests)
        node.feeds.close(ClusterError("ValueError: no such weights", fix="Correct your function."))
        with pytest.raises(ClusterError, match="no such weights"):
            asked.result(WITHIN)


def test_a_function_that_returns_tells_the_task_that_waits(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(1) as pool:
        requests = node.feeds.requests()
        asked = pool.submit(ask, node, range(10))
        next(requests)
        node.feeds.close()
        with pytest.raises(ClusterError, match="it has ended"):
            asked.result(WITHIN)


def test_requests_end_after_those_that_have_arrived(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(1) as pool:
        requests = node.feeds.requests()
        asked = pool.submit(ask, node, range(10))
        request = next(requests)
        node.feeds.on_message(FeedsEnd())
        request.reply(request.numpy()["x"])
        assert next(requests, None) is None
        assert asked.result(WITHIN)[:1] == [{"prediction": 0}]
        with pytest.raises(ClusterError, match="after its end"):
            ask(node, range(10))
