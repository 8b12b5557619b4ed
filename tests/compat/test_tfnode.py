"""What a node's function calls: paths, the feed, the context; without Spark."""

import getpass
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from emberflow.errors import ClusterError
from tensorflowonspark import TFCluster, TFManager, TFNode
from tensorflowonspark.marker import EndPartition
from tensorflowonspark.node_queues import NodeManager, ResultQueue, RowQueue
from tensorflowonspark.node_results import Results
from tensorflowonspark.node_roles import layout_of
from tensorflowonspark.old_errors import ResultsError, executors_named
from tensorflowonspark.remote_paths import explained_paths
from tensorflowonspark.TFSparkNode import TFNodeContext


@pytest.mark.parametrize(
    ("default_fs", "path", "expected"),
    [
        ("hdfs://nn:8020", "hdfs://other/x", "hdfs://other/x"),
        ("file://", "gs://bucket/x", "gs://bucket/x"),
        ("hdfs://nn:8020", "/x", "hdfs://nn:8020/x"),
        ("file://", "/x", "file:///x"),
        ("hdfs://nn:8020", "x", f"hdfs://nn:8020/user/{getpass.getuser()}/x"),
        ("viewfs://v", "x", f"viewfs://v/user/{getpass.getuser()}/x"),
        ("file://", "x", "file:///work/x"),
        ("s3a://bucket", "x", "s3a://bucket/x"),
    ],
)
def test_paths(default_fs: str, path: str, expected: str) -> None:
    ctx = TFNodeContext(defaultFS=default_fs, working_dir="/work")
    assert ctx.absolute_path(path) == expected


def test_context_of_a_users_own_test() -> None:
    spec = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"], "evaluator": ["e:1"]}
    ctx = TFNodeContext(3, "worker", 1, spec)
    assert (ctx.worker_num, ctx.executor_id, ctx.num_workers, ctx.mgr) == (3, 3, 3, None)
    with pytest.raises(Exception, match="DEPRECATED"):
        ctx.start_cluster_server()
    with pytest.raises(Exception, match=r"Use TFNode\.DataFeed class instead"):
        TFNode.next_batch(None, 1)


def test_a_remote_path_that_tensorflow_cannot_open_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())  # it waits there for the import of TensorFlow
    with pytest.raises(OSError, match=r"hdfs(.|\n)*ctx\.mirror"), explained_paths():
        raise RuntimeError("File system scheme 'hdfs' not implemented (file: 'hdfs://nn/x')")
    with pytest.raises(RuntimeError, match="another"), explained_paths():
        raise RuntimeError("another")
    ctx = TFNodeContext(defaultFS="hdfs://nn")
    with pytest.raises(Exception, match="Only nodes of TFCluster"):
        ctx.mirror("x")
    ctx.mirror_by = lambda url: f"local of {url}"
    assert ctx.mirror("/x") == "local of hdfs://nn/x"


def feed_of_manager(rows: list[Any]) -> Any:
    manager = TFManager.start(b"key", ["input", "output"], "local")
    for row in rows:
        manager.get_queue("input").put(row)
    return manager


def feed_of_node(rows: list[Any]) -> Any:
    queue = RowQueue(most=100)
    for row in rows:
        queue.put(row)
    return NodeManager({"input": queue, "output": ResultQueue(lambda _: None)})


@pytest.mark.parametrize("manager_of", [feed_of_manager, feed_of_node])
class TestDataFeed:
    def test_batches_to_the_end(self, manager_of: Any) -> None:
        feed = TFNode.DataFeed(manager_of([*range(10), None]))
        assert feed.next_batch(2) == [0, 1]
        assert feed.next_batch(4) == [2, 3, 4, 5]
        assert not feed.should_stop()
        assert feed.next_batch(10) == [6, 7, 8, 9]
        assert feed.should_stop()

    def test_the_usual_loop_ends_with_one_empty_batch(self, manager_of: Any) -> None:
        feed = TFNode.DataFeed(manager_of([*range(4), None]))
        batches = []
        while not feed.should_stop():
            batches.append(feed.next_batch(2))
        assert batches == [[0, 1], [2, 3], []]

    def test_a_partition_ends_a_batch_of_an_inference_only(self, manager_of: Any) -> None:
        rows = [0, 1, 2, EndPartition(), EndPartition(), 3, EndPartition(), None]
        feed = TFNode.DataFeed(manager_of(rows), train_mode=False)
        assert [feed.next_batch(2) for _ in range(4)] == [[0, 1], [2], [3], []]
        feed = TFNode.DataFeed(manager_of(rows))
        assert [feed.next_batch(3), feed.next_batch(3)] == [[0, 1, 2], [3]]

    def test_columns_by_tensor_in_the_order_of_columns(self, manager_of: Any) -> None:
        mapping = {"col2": "y", "col1": "x"}
        feed = TFNode.DataFeed(manager_of([(1, "a"), (2, "b"), None]), input_mapping=mapping)
        assert feed.input_tensors == ["x", "y"]
        assert feed.next_batch(5) == {"x": [1, 2], "y": ["a", "b"]}
        assert feed.next_batch(5) == {"x": [], "y": []} if manager_of is feed_of_node else True

    def test_terminate_drops_what_waits(self, manager_of: Any) -> None:
        manager = manager_of([1, 2, 3])
        feed = TFNode.DataFeed(manager)
        feed.terminate()
        assert str(manager.get("state")) == "'terminating'"
        assert manager.get_queue("input").empty()
        assert not feed.should_stop()


def test_lists_of_rows_are_cut_as_asked() -> None:
    queue = RowQueue(most=100)
    for rows in ([0, 1, 2, 3, 4], [5], [], [6, 7]):
        queue.bring(rows)
    queue.put(None)
    feed = TFNode.DataFeed(NodeManager({"input": queue}))
    assert queue.qsize() == 8
    assert [feed.next_batch(3), feed.next_batch(4), feed.next_batch(9)] == [[0, 1, 2], [3, 4, 5, 6], [7]]


def test_who_brings_rows_waits_for_room() -> None:
    queue = RowQueue(most=1)
    queue.bring([1])
    second = threading.Thread(target=queue.bring, args=([2],), daemon=True)
    second.start()
    assert queue.take(5) == [1]
    second.join(10)
    assert queue.take(5) == [2]
    assert not second.is_alive()


class TestResults:
    def ask(self, chunks: list[list[Any]], answer: Any, feed_timeout: float = 10.0) -> Any:
        """Return what a task gets, and what your function raised."""
        results, queue, errors = Results(), RowQueue(), []
        queue.on_wait = results.check_given
        feed = TFNode.DataFeed(
            NodeManager({"input": queue, "output": ResultQueue(results.give)}), train_mode=False
        )

        def work() -> None:
            try:
                while not feed.should_stop():
                    feed.batch_results(answer(feed.next_batch(2)))
            except ResultsError as error:
                errors.append(error)
                results.fail("Your function has raised")

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        found = results.ask(chunks, queue, feed_timeout)
        queue.put(None)
        thread.join(10)
        return found, errors

    def test_one_per_row_in_their_chunks(self) -> None:
        found, errors = self.ask([[1, 2, 3], [4], []], lambda rows: [row * 10 for row in rows])
        assert (found, errors) == ([[10, 20, 30], [40], []], [])
        found, errors = self.ask([[number] for number in range(500)], lambda rows: rows)
        assert (found, errors) == ([[number] for number in range(500)], [])

    def test_too_many_are_an_error_in_the_function(self) -> None:
        found, errors = self.ask([[1]], lambda rows: rows + rows)
        assert "2 results for 1 rows" in str(errors[0])
        assert "2 results for 1 rows" in found[0].problem

    def test_too_few_are_an_error_and_no_hang(self) -> None:
        found, errors = self.ask([[1, 2, 3]], lambda rows: rows[:1])
        assert "2 results for 3 rows" in str(errors[0])
        assert "2 results for 3 rows" in found[0].problem

    def test_none_at_all_is_a_timeout(self) -> None:
        waiting = threading.Event()
        found, _ = self.ask([[1, 2, 3]], lambda rows: waiting.wait(5) or rows, feed_timeout=0.1)
        waiting.set()
        assert "Timeout while feeding partition" in found[0].problem


def test_roles_by_executor_id() -> None:
    layout = layout_of(5, 1, "chief", True)
    assert layout.template() == {"ps": [0], "chief": [1], "evaluator": [2], "worker": [3, 4]}
    nodes = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)]
    assert [layout.executor_id(*node) for node in nodes] == [1, 3, 4, 0, 2]
    alone = layout_of(2, 0, None, False)
    assert [alone.job_of(*node) for node in nodes[:2]] == [("worker", 0), ("worker", 1)]
    with pytest.raises(AssertionError, match="requires 3 nodes, but only 2 executors available"):
        layout_of(2, 2, "chief", False)


def test_what_cannot_be_fed_is_refused() -> None:
    with pytest.raises(AssertionError, match="num_ps cannot be negative"):
        layout_of(2, -1, None, False)
    cluster = object.__new__(TFCluster.TFCluster)
    cluster.input_mode, cluster.queues = TFCluster.InputMode.SPARK, ["input"]
    rows: Any = [1, 2]
    for feed in (cluster.train, cluster.inference):
        with pytest.raises(
            AssertionError, match=r"(?s)requires an RDD.*Received: an object of list.*df\.rdd"
        ):
            feed(rows)
    cluster._is_shut_down = True
    with pytest.raises(ClusterError, match=r"(?s)after shutdown\(\).*TFCluster\.run"):
        cluster.train_frame(rows, 1)


def test_a_feed_of_an_unknown_queue() -> None:
    feed = TFNode.DataFeed(NodeManager({}), qname_in="mine", qname_out="yours")
    with pytest.raises(AssertionError, match=r"(?s)Unknown queue: mine.*queues="):
        feed.next_batch(1)
    with pytest.raises(AssertionError, match="Unknown queue: yours"):
        feed.batch_results([1])


def test_errors_name_what_old_programs_pass() -> None:
    fix = "Pass workers=2 or fewer; if executors are still starting, raise executor_timeout."
    with (
        pytest.raises(ClusterError, match=r"Pass num_executors=3 or fewer; .+, run it again"),
        executors_named(1),
    ):
        raise ClusterError("Too few slots.", fix)
    with pytest.raises(ClusterError, match=r"Pass num_executors=2 .+ use_barrier=False"), executors_named():
        raise ClusterError("Too few slots.", "Pass tasks=2 or fewer, or barrier=False.")


def test_release_port_closes_the_socket(caplog: pytest.LogCaptureFixture) -> None:
    closed = []
    ctx = TFNodeContext(tmp_socket=SimpleNamespace(close=lambda: closed.append(1)))  # type: ignore[arg-type]
    TFNode.release_port(ctx)
    ctx.release_port()
    assert (closed, ctx.tmp_socket) == ([1], None)
    assert "no socket to release" in caplog.text
