"""Training on a stream: each micro-batch once, whatever fails in between. Nodes and Spark are stand-ins."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emberflow import storage
from emberflow._driver.round_feeding import RoundStorage
from emberflow._driver.stream_training import NodesModel, StreamTraining, check_stream
from emberflow.errors import ClusterError, ConfigError, DataError, StorageError, StreamError, SupersededError


class Nodes:
    """Stands for the nodes of one attempt: their model is the list of batches that it was trained on."""

    def __init__(self) -> None:
        self.model: list[int] = []
        self.fails: Exception | None = None

    def train(self, batch: Any, epochs: int, name: str, order: RoundStorage) -> Any:
        if order.resume_from:
            self.model = [int(each) for each in storage.read_bytes(f"{order.resume_from}/seen").split()]
        if self.fails is not None:
            raise self.fails
        self.model += [batch.number] * epochs
        storage.write_bytes(f"{order.store_to}/seen", " ".join(map(str, self.model)).encode())
        if order.exports:
            storage.write_bytes(f"{order.store_to}/version", b"")
        return SimpleNamespace(rows=batch.rows)


class Publisher:
    """Notes what is published."""

    def __init__(self, every: int, latest: int = 0) -> None:
        self.every = every
        self.published: dict[int, str] = {}
        self._latest = latest

    def latest(self) -> int:
        return self._latest

    def publish(self, model_path: str, number: int, origin: str) -> None:
        seen = storage.read_bytes(f"{model_path}/seen").decode()
        assert storage.exists(f"{model_path}/version")
        assert self.published.setdefault(number, seen) == seen
        assert number == max(self.published)
        assert origin


def batch_of(number: int, rows: int = 5, columns: str = "struct<x:int>") -> Any:
    schema = SimpleNamespace(simpleString=lambda: columns)
    return SimpleNamespace(number=number, rows=rows, schema=schema, isEmpty=lambda: rows == 0)


def through(nodes: Nodes) -> Callable[[Any], Any]:
    return lambda call: call(nodes)


def training_on(
    folder: Path, nodes: Nodes, known: NodesModel | None = None, **options: Any
) -> StreamTraining:
    training = StreamTraining(
        str(folder), through(nodes), known or NodesModel(), **({"name": "train", "epochs": 1} | options)
    )
    training.query_id.set_result("q")
    return training


def test_each_batch_is_trained_on_once_and_continued_by_other_nodes(tmp_path: Path) -> None:
    first = training_on(tmp_path, nodes := Nodes())
    for number in range(3):
        first(batch_of(number), number)
    assert nodes.model == [0, 1, 2]
    second = training_on(tmp_path, later := Nodes())
    second(batch_of(2), 2)  # Spark repeats what it was not told to be done
    second(batch_of(3), 3)
    second(batch_of(4), 4)
    assert later.model == [0, 1, 2, 3, 4]
    assert second._progress.last is not None
    assert second._progress.last.rows == 25


def test_nodes_that_are_ahead_of_the_store_are_set_back(tmp_path: Path) -> None:
    nodes, known = Nodes(), NodesModel()
    first = training_on(tmp_path, nodes, known)
    first(batch_of(0), 0)
    second = training_on(tmp_path, nodes, known)  # the query was started again: the first one may not store
    with pytest.raises(SupersededError):
        first(batch_of(1), 1)
    assert nodes.model == [0, 1]
    second(batch_of(1), 1)
    assert nodes.model == [0, 1]


def test_nodes_that_are_ahead_of_an_empty_store_are_refused(tmp_path: Path) -> None:
    nodes, known = Nodes(), NodesModel()
    first = training_on(tmp_path, nodes, known)
    second = training_on(tmp_path, nodes, known)
    with pytest.raises(SupersededError):
        first(batch_of(0), 0)
    with pytest.raises(StreamError, match="trained on its first batch"):
        second(batch_of(0), 0)
    training_on(tmp_path, fresh := Nodes(), NodesModel())(batch_of(0), 0)
    assert fresh.model == [0]


def test_a_round_that_fails_is_not_stored(tmp_path: Path) -> None:
    nodes = Nodes()
    training = training_on(tmp_path, nodes)
    training(batch_of(0), 0)
    nodes.fails = ClusterError("lost", "again")
    with pytest.raises(ClusterError):
        training(batch_of(1), 1)
    assert not training_on(tmp_path, Nodes())._progress.is_stored("q", 1)


def test_empty_batches_are_noted_and_not_trained_on(tmp_path: Path) -> None:
    training = training_on(tmp_path, nodes := Nodes(), publisher=(publisher := Publisher(every=1)))
    for number, rows in enumerate([0, 0, 5, 0, 0, 0, 5]):
        training(batch_of(number, rows), number)
    assert nodes.model == [2, 6]
    assert publisher.published == {1: "2", 2: "2 6"}


def test_versions_are_published_after_so_many_batches_and_follow_those_that_are_there(tmp_path: Path) -> None:
    publisher = Publisher(every=2, latest=7)
    training = training_on(tmp_path, Nodes(), publisher=publisher)
    for number in range(3):
        training(batch_of(number), number)
    assert publisher.published == {8: "0 1"}
    again = training_on(tmp_path, Nodes(), publisher=publisher)
    for number in (3, 4, 5):
        again(batch_of(number), number)
    assert publisher.published == {8: "0 1", 9: "0 1 2 3", 10: "0 1 2 3 4 5"}


def test_a_version_that_a_killed_driver_did_not_publish_is_published_by_the_next(tmp_path: Path) -> None:
    class Killed(Publisher):
        def publish(self, model_path: str, number: int, origin: str) -> None:
            raise StorageError("killed here", "start again")

    with pytest.raises(StorageError):
        training_on(tmp_path, Nodes(), publisher=Killed(every=1))(batch_of(0), 0)
    publisher = Publisher(every=1)
    training_on(tmp_path, Nodes(), publisher=publisher)(batch_of(0), 0)
    assert publisher.published == {1: "0"}


def test_other_columns_are_refused_with_both(tmp_path: Path) -> None:
    training_on(tmp_path, Nodes())(batch_of(0), 0)
    with pytest.raises(DataError, match=r"Received: struct<y:int>; .* struct<x:int>"):
        training_on(tmp_path, Nodes())(batch_of(1, columns="struct<y:int>"), 1)


def test_a_model_that_the_driver_cannot_see_is_a_typed_error(tmp_path: Path) -> None:
    class Elsewhere(Nodes):
        def train(self, batch: Any, epochs: int, name: str, order: RoundStorage) -> Any:
            return SimpleNamespace(rows=5)

    with pytest.raises(StreamError, match="where this driver finds it"):
        training_on(tmp_path, Elsewhere())(batch_of(0), 0)


def test_what_is_no_stream_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be a streaming DataFrame") as caught:
        check_stream(SimpleNamespace(isStreaming=False), "/tmp/x", is_connect=False)
    assert "DStreams" in caught.value.fix
    with pytest.raises(ConfigError, match="Spark Connect"):
        check_stream(SimpleNamespace(isStreaming=True), "/tmp/x", is_connect=True)
    with pytest.raises(ConfigError, match="checkpoint"):
        check_stream(SimpleNamespace(isStreaming=True), "", is_connect=False)
