"""Programs as a user of TensorFlowOnSpark 2.2.5 wrote them, on two one-core workers."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emberflow.errors import ClusterError, NodeLostError
from tensorflowonspark import TFCluster, TFNode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")

SPARK = TFCluster.InputMode.SPARK


def squares(args: Any, ctx: Any) -> None:
    feed = TFNode.DataFeed(ctx.mgr, False)
    while not feed.should_stop():
        batch = feed.next_batch(10)
        assert len(batch) <= 10
        feed.batch_results([x * x for [x] in batch])


def write_sums(args: Any, ctx: Any) -> None:
    """Train as the old MNIST program did: count what comes, until the end."""
    feed = ctx.get_data_feed()
    seen, batches = [], 0
    while not feed.should_stop():
        batch = feed.next_batch(100)
        seen += [label for label, _ in batch]
        batches += 1
    facts = {
        "rows": len(seen),
        "total": sum(seen),
        "batches": batches,
        "job": ctx.job_name,
        "index": ctx.task_index,
    }
    facts |= {"workers": ctx.num_workers, "keras": os.environ["TF_USE_LEGACY_KERAS"], "id": ctx.worker_num}
    Path(args["folder"], f"{ctx.executor_id}.json").write_text(json.dumps(facts))


def facts_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def test_rows_are_fed_and_asked_in_one_program(spark_standalone: "SparkSession", tmp_path: Path) -> None:
    sc = spark_standalone.sparkContext
    cluster = TFCluster.run(sc, squares, {}, 2, 0, False, SPARK)
    asked = cluster.inference(sc.parallelize([[x] for x in range(1000)], 10))
    assert asked.collect() == [x * x for x in range(1000)]
    assert asked.sum() == sum(x * x for x in range(1000))  # each action asks again
    cluster.shutdown()
    with pytest.raises(ClusterError, match="after shutdown"):
        cluster.train(sc.parallelize([1]))
    with pytest.raises(ClusterError, match="after shutdown"):
        cluster.inference(sc.parallelize([1]))
    cluster.shutdown()  # once more is no error

    rows = sc.parallelize([(x, b"pixels") for x in range(1000)], 5)
    cluster = TFCluster.run(
        sc, write_sums, {"folder": str(tmp_path)}, 2, 0, input_mode=SPARK, master_node="chief"
    )
    cluster.train(rows, num_epochs=2)
    cluster.train(sc.parallelize([], 2), 1)  # rows may be none
    cluster.shutdown(grace_secs=5)
    facts = facts_in(tmp_path)
    assert sum(node["rows"] for node in facts) == 2000
    assert sum(node["total"] for node in facts) == 2 * 499_500
    assert [(node["job"], node["index"], node["id"]) for node in facts] == [("chief", 0, 0), ("worker", 0, 1)]
    assert {(node["workers"], node["keras"]) for node in facts} == {(2, "1")}


@pytest.mark.full
def test_ten_epochs_by_default_and_none_after_terminate(
    spark_standalone: "SparkSession", tmp_path: Path
) -> None:
    def take_some(args: Any, ctx: Any) -> None:
        feed = ctx.get_data_feed()
        rows = 0
        while rows < args.most and not feed.should_stop():
            rows += len(feed.next_batch(10))
        if rows >= args.most:
            feed.terminate()
            assert str(ctx.mgr.get("state")) == "'terminating'"
        Path(args.folder, f"{ctx.executor_id}.json").write_text(json.dumps({"rows": rows}))

    sc = spark_standalone.sparkContext
    args = argparse.Namespace(folder=str(tmp_path), most=10**9)
    rows = sc.parallelize(range(100), 4)
    cluster = TFCluster.run(sc, take_some, args, 2, 0, input_mode=SPARK)
    cluster.train(rows)
    cluster.shutdown()
    assert sum(node["rows"] for node in facts_in(tmp_path)) == 1000

    args.most = 30
    slow = sc.parallelize(range(10**6), 400)
    cluster = TFCluster.run(sc, take_some, args, 2, 0, input_mode=SPARK)
    cluster.train(slow, 1000)  # returns long before all of it was computed
    cluster.train(slow)
    assert cluster.server.done
    cluster.shutdown()
    assert [node["rows"] for node in facts_in(tmp_path)] == [30, 30]


@pytest.mark.full
def test_errors_while_and_after_feeding(spark_standalone: "SparkSession") -> None:
    def fail(args: Any, ctx: Any) -> None:
        feed = ctx.get_data_feed()
        while not feed.should_stop():
            if feed.next_batch(10) and args["when"] == "while":
                raise ValueError("while feeding")
        time.sleep(2)
        raise ValueError("after feeding")

    sc = spark_standalone.sparkContext
    rows = sc.parallelize(range(1000), 10)
    cluster = TFCluster.run(sc, fail, {"when": "while"}, 2, 0, input_mode=SPARK)
    with pytest.raises(Exception, match=r"Exception in worker:\n(.|\n)*while feeding"):
        cluster.train(rows, 1)
    with pytest.raises(Exception, match="while feeding"):
        cluster.shutdown()

    cluster = TFCluster.run(sc, fail, {"when": "after"}, 2, 0, input_mode=SPARK)
    cluster.train(rows, 1)
    with pytest.raises(Exception, match=r"Exception in worker:\n(.|\n)*after feeding"):
        cluster.shutdown()


@pytest.mark.full
def test_an_inference_that_spark_repeats_tells_the_cause(spark_retrying: "SparkSession") -> None:
    def fail(args: Any, ctx: Any) -> None:
        feed = ctx.get_data_feed(train_mode=False)
        while not feed.should_stop():
            if feed.next_batch(10):
                raise ValueError("while asked")

    sc = spark_retrying.sparkContext
    cluster = TFCluster.run(sc, fail, {}, 2, 0, input_mode=SPARK)
    with pytest.raises(Exception, match=r"Exception in worker:\n(.|\n)*while asked"):
        cluster.inference(sc.parallelize(range(100), 4)).collect()
    with pytest.raises(Exception, match=r"Exception in worker:\n(.|\n)*while asked"):
        cluster.shutdown()
    with pytest.raises(ClusterError, match="after shutdown"):
        cluster.train(sc.parallelize([1]))


@pytest.mark.full
def test_a_node_that_is_killed_while_it_is_fed(spark_standalone: "SparkSession") -> None:
    def die(args: Any, ctx: Any) -> None:
        feed = ctx.get_data_feed()
        while not feed.should_stop():
            if feed.next_batch(10) and ctx.task_index == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    sc = spark_standalone.sparkContext
    cluster = TFCluster.run(sc, die, {}, 2, 0, input_mode=SPARK)
    with pytest.raises(NodeLostError, match="SIGKILL"):
        cluster.train(sc.parallelize(range(100_000), 10))
    with pytest.raises(NodeLostError, match="SIGKILL"):
        cluster.shutdown()
    assert sc.parallelize([1, 2], 2).sum() == 3  # the SparkContext is not stopped


@pytest.mark.full
@pytest.mark.parametrize("results", [9, 11], ids=["fewer", "more"])
def test_results_that_are_not_one_per_row(spark_standalone: "SparkSession", results: int) -> None:
    def miscount(args: Any, ctx: Any) -> None:
        feed = ctx.get_data_feed(train_mode=False)
        while not feed.should_stop():
            if feed.next_batch(10):
                feed.batch_results(range(results))

    sc = spark_standalone.sparkContext
    cluster = TFCluster.run(sc, miscount, [], 2, 0, input_mode=SPARK)
    with pytest.raises(Exception, match=rf"Received: {5 * results} results for 50 rows"):
        cluster.inference(sc.parallelize(range(100), 2)).collect()
    with pytest.raises(Exception, match="results must be one per row"):
        cluster.shutdown()


@pytest.mark.full
def test_rows_that_nobody_takes(spark_standalone: "SparkSession") -> None:
    def sleep(args: Any, ctx: Any) -> None:
        time.sleep(300)

    sc = spark_standalone.sparkContext
    cluster = TFCluster.run(sc, sleep, [], 2, 0, input_mode=SPARK)
    with pytest.raises(Exception, match="Timeout while feeding partition"):
        cluster.train(sc.parallelize(range(100_000), 10), 1, feed_timeout=3)


@pytest.mark.full
def test_nodes_that_read_their_own_rows(spark_standalone: "SparkSession", tmp_path: Path) -> None:
    def write_roles(args: Any, ctx: Any) -> None:
        config = json.loads(os.environ["TF_CONFIG"])
        jobs = {job: len(addresses) for job, addresses in ctx.cluster_spec.items()}
        facts = {
            "job": ctx.job_name,
            "index": ctx.task_index,
            "argv": sys.argv,
            "jobs": jobs,
            "task": config["task"],
        }
        facts["socket"] = ctx.tmp_socket is not None
        ctx.release_port()
        Path(args[1], f"{ctx.executor_id}.json").write_text(json.dumps(facts))
        if ctx.job_name in ("ps", "evaluator"):
            time.sleep(600)  # as server.join() does

    sc = spark_standalone.sparkContext
    args = ["--folder", str(tmp_path)]
    cluster = TFCluster.run(sc, write_roles, args, 2, 1, master_node="chief", release_port=False)
    assert [node["job_name"] for node in cluster.cluster_info or ()] == ["ps", "chief"]
    cluster.shutdown()
    ps, chief = facts_in(tmp_path)
    assert (ps["job"], chief["job"]) == ("ps", "chief")
    assert ps["jobs"] == chief["jobs"] == {"ps": 1, "chief": 1}
    assert (ps["task"], chief["task"]) == ({"type": "ps", "index": 0}, {"type": "chief", "index": 0})
    assert (chief["argv"], chief["socket"]) == (args, True)

    cluster = TFCluster.run(sc, write_roles, args, 2, 0, master_node="chief", eval_node=True)
    cluster.shutdown()
    assert [node["job"] for node in facts_in(tmp_path)] == ["chief", "evaluator"]
    with pytest.raises(AssertionError, match=r"requires InputMode\.SPARK"):
        cluster.train(sc.parallelize([1]))


@pytest.mark.full
def test_what_the_old_library_asserted(spark_standalone: "SparkSession") -> None:
    sc = spark_standalone.sparkContext
    with pytest.raises(
        AssertionError, match="TensorFlow cluster requires 3 nodes, but only 2 executors available"
    ):
        TFCluster.run(sc, squares, {}, 2, 2, master_node="chief")
    with pytest.raises(AssertionError, match="at least one worker"):
        TFCluster.run(sc, squares, {}, 2, 2)
    with pytest.raises(Exception, match="eval_node is only supported"):
        TFCluster.run(sc, squares, {}, 2, 0, input_mode=SPARK, eval_node=True)
    with pytest.raises(Exception, match="slots"):
        TFCluster.run(sc, squares, {}, 5, 0, input_mode=SPARK)
    with pytest.raises(ClusterError, match="slots"):
        TFCluster.run(sc, squares, {}, 3, 2)
    cluster = TFCluster.run(sc, squares, {}, 1, 0, input_mode=SPARK)
    with pytest.raises(AssertionError, match="Unknown queue: other"):
        cluster.train(sc.parallelize([1]), qname="other")
    with pytest.raises(AssertionError, match="num_epochs cannot be negative"):
        cluster.train(sc.parallelize([1]), num_epochs=-1)
    cluster.shutdown()
