"""How rows and requests of a live cluster reach `DataFeed` on a node; the live cluster's part is a stand-in."""

import json
import os
import pickle
import queue
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from emberflow_compat import deadlines
from emberflow_compat.keras_choice import KerasChoice
from tensorflowonspark.node_feeds import COLUMNS, TERMINATED, NodeFeeds
from tensorflowonspark.node_program import NodeProgram
from tensorflowonspark.node_roles import layout_of
from tensorflowonspark.old_errors import ResultsError
from tensorflowonspark.row_chunks import chunks_to_ask, chunks_to_train, results_in
from tensorflowonspark.TFNode import DataFeed


class Stream:
    """The rows of `ctx.stream`, until None."""

    def __init__(self) -> None:
        self.batches: queue.Queue[Any] = queue.Queue()

    def next(self, rows: int) -> Any:
        return self.batches.get(timeout=30)


class Request:
    """A request, and its reply."""

    def __init__(self, rows: list[Any], feed_timeout: float = 30.0) -> None:
        asked = list(chunks_to_ask(rows, feed_timeout))
        self.batch = pa.record_batch(
            [[chunk for chunk, _ in asked], [seconds for _, seconds in asked]], names=["rows", "feed_timeout"]
        )
        self.replies: queue.Queue[Any] = queue.Queue()

    def reply(self, result: Any) -> None:
        self.replies.put(result)

    def results(self) -> list[Any]:
        chunks = self.replies.get(timeout=30).column(0).to_pylist()
        return [result for chunk in chunks for result in results_in([chunk])]


class Node:
    """As much of Emberflow's context as a node's feeds need."""

    role, index, rank = "chief", 0, 0

    def __init__(self) -> None:
        self.cluster_spec = {"chief": ["a:1"]}
        self.streams: dict[str, Stream] = {"input": Stream(), "input" + COLUMNS: Stream()}
        self.asked: queue.Queue[Request | None] = queue.Queue()
        self.reports: list[dict[str, float]] = []

    def stream(self, name: str) -> Stream:
        return self.streams[name]

    def requests(self, name: str) -> Iterator[Request]:
        while (request := self.asked.get(timeout=30)) is not None:
            yield request

    def report(self, **metrics: float) -> None:
        self.reports.append(metrics)

    def mirror(self, path: str) -> str:
        return path

    def train(self, rows: list[Any]) -> None:
        for chunk in chunks_to_train(rows):
            self.streams["input"].batches.put(pa.record_batch([[chunk]], names=["value"]))

    def stop(self) -> None:
        for stream in self.streams.values():
            stream.batches.put(None)
        self.asked.put(None)


def rest_of(feed: DataFeed, size: int) -> list[Any]:
    rows = []
    while not feed.should_stop():
        rows += feed.next_batch(size)
    return rows


def test_rows_of_rdds_and_of_dataframes() -> None:
    node = Node()
    feed = DataFeed(NodeFeeds(node, ["input", "output", "error"]).manager)
    rows = [(number, "text", [0.5]) for number in range(1000)]
    node.train(rows)
    node.train([])
    node.streams["input" + COLUMNS].batches.put(pa.record_batch({"a": [1, 2], "b": [[0.5], [1.5]]}))
    node.stop()
    found = rest_of(feed, 100)
    assert [row for row in found if len(row) == 3] == rows
    assert [row for row in found if len(row) == 2] == [(1, [0.5]), (2, [1.5])]


def test_each_request_gets_its_own_results() -> None:
    node = Node()
    feeds = NodeFeeds(node, ["input", "output", "error"])
    requests = [Request(list(range(300))), Request([5])]
    for request in requests:
        node.asked.put(request)
    node.stop()
    feed = DataFeed(feeds.manager, train_mode=False)
    while not feed.should_stop():
        feed.batch_results([row * row for row in feed.next_batch(7)])
    assert [request.results() for request in requests] == [[row * row for row in range(300)], [25]]


def test_what_comes_after_terminate_is_dropped() -> None:
    node = Node()
    feeds = NodeFeeds(node, ["input", "output", "error"])
    feed = DataFeed(feeds.manager)
    node.train(list(range(10_000)))
    assert feed.next_batch(10) == list(range(10))
    feed.terminate()
    assert node.reports == [{TERMINATED: 1.0}]
    node.train(list(range(10_000)))
    request = Request([1])
    node.asked.put(request)
    node.stop()
    feeds.finish()  # returns when all was taken and dropped
    assert feed.next_batch(10) == []
    with pytest.raises(ValueError, match="0 results for 1 rows"):
        request.results()


def test_a_repeated_task_is_told_why_the_function_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "REPEATED_TASK", 0.5)
    node = Node()
    feeds = NodeFeeds(node, ["input", "output", "error"])
    requests = [Request(list(range(3000))) for _ in range(2)]  # Spark repeats the task of the first one
    node.asked.put(requests[0])

    def fail() -> None:
        DataFeed(feeds.manager, train_mode=False).next_batch(10)
        node.asked.put(requests[1])
        raise KeyError("of mine")

    with pytest.raises(KeyError), feeds.errors_told():
        fail()
    node.stop()
    for request in requests:
        with pytest.raises(ResultsError, match=r"(?s)0 results for 3000 rows.*Exception in worker:.*of mine"):
            request.results()


def test_too_many_results_are_told_to_a_repeated_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "REPEATED_TASK", 0.5)
    node = Node()
    feeds = NodeFeeds(node, ["input", "output", "error"])
    first, again = Request([1, 2]), Request([1, 2])
    node.asked.put(first)

    def give_too_many() -> None:
        feed = DataFeed(feeds.manager, train_mode=False)
        try:
            feed.batch_results([*feed.next_batch(2), 3])
        finally:
            with pytest.raises(ResultsError, match="3 results for 2 rows"):
                first.results()  # answered before the function has ended
            node.asked.put(again)

    with pytest.raises(ResultsError), feeds.errors_told():
        give_too_many()
    node.stop()
    with pytest.raises(ResultsError, match=r"(?s)Exception in worker:.*3 results for 2 rows"):
        again.results()


def test_rows_that_cannot_be_loaded_are_an_error_of_the_function() -> None:
    node = Node()
    feed = DataFeed(NodeFeeds(node, ["input"]).manager)
    node.streams["input"].batches.put(pa.record_batch([[b"no pickle"]], names=["value"]))
    with pytest.raises(pickle.UnpicklingError):
        feed.next_batch(1)
    node.stop()


def test_the_program_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    seen: list[Any] = []

    def main(args: Any, ctx: Any) -> None:
        seen.append((args, ctx.job_name, ctx.executor_id, ctx.cluster_spec, ctx.absolute_path("x")))
        seen.extend(rest_of(ctx.get_data_feed(), 2))

    node = Node()
    node.train([1, 2, 3])
    node.stop()
    NodeProgram(
        keras=KerasChoice("1"),
        layout=layout_of(1, 0, "master", False),
        default_fs="hdfs://nn",
        working_dir="/work",
        queues=("input", "output", "error"),
        is_fed=True,
        keeps_port=False,
        tf_args={"a": 1},
        map_fun=main,
    )(node)
    assert seen[0][:4] == ({"a": 1}, "master", 0, {"master": ["a:1"]})
    assert seen[1:] == [1, 2, 3]
    config = json.loads(os.environ["TF_CONFIG"])
    assert (config["cluster"], config["task"]) == ({"master": ["a:1"]}, {"type": "master", "index": 0})


def test_the_choice_of_keras_holds_before_the_function_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    data = pickle.dumps([KerasChoice("0"), _Look()])
    assert pickle.loads(data)[1] == "0"


class _Look:
    """Becomes the value of the variable at the time of its unpickling."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _look, ()


def _look() -> str:
    return os.environ["TF_USE_LEGACY_KERAS"]
