"""Options of `TFCluster.run` that few old programs used, on two one-core workers."""

import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tensorflowonspark import TFCluster, compat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.full]

SPARK = TFCluster.InputMode.SPARK
START = 120.0


def take_all(args: Any, ctx: Any) -> None:
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_batch(10)


def test_a_stream_is_fed_until_all_nodes_terminate(spark_standalone: "SparkSession", tmp_path: Path) -> None:
    from pyspark.streaming import StreamingContext

    def take_some(args: Any, ctx: Any) -> None:
        feed = ctx.get_data_feed()
        taken: list[int] = []
        while len(taken) < args["most"] and not feed.should_stop():
            taken += feed.next_batch(10)
        feed.terminate()
        Path(args["folder"], f"{ctx.executor_id}.json").write_text(json.dumps(taken))

    sc = spark_standalone.sparkContext
    ssc = StreamingContext(sc, 1)
    rows = sc.parallelize(range(100), 4)
    cluster = TFCluster.run(sc, take_some, {"folder": str(tmp_path), "most": 60}, 2, 0, input_mode=SPARK)
    cluster.train(ssc.queueStream([rows], default=rows), feed_timeout=600)
    ssc.start()
    cluster.shutdown(ssc)
    taken = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert [len(each) for each in taken] == [60, 60]
    assert set(taken[0] + taken[1]) <= set(range(100))
    assert sc.parallelize([1, 2], 2).sum() == 3  # the SparkContext is not stopped


def test_a_node_that_fails_ends_its_stream(spark_standalone: "SparkSession") -> None:
    from pyspark.streaming import StreamingContext

    def fail(args: Any, ctx: Any) -> None:
        ctx.get_data_feed().next_batch(10)
        raise ValueError("on the first rows")

    sc = spark_standalone.sparkContext
    ssc = StreamingContext(sc, 1)
    rows = sc.parallelize(range(100), 4)
    cluster = TFCluster.run(sc, fail, {}, 1, 0, input_mode=SPARK)
    cluster.train(ssc.queueStream([rows], default=rows))
    ssc.start()
    with pytest.raises(Exception, match=r"Exception in worker:\n(.|\n)*on the first rows"):
        cluster.shutdown(ssc)
    assert StreamingContext.getActive() is None


def test_tensorboard_serves_and_every_node_has_a_port(
    spark_standalone: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TENSORBOARD_PORT", "6006")
    sc = spark_standalone.sparkContext
    cluster = TFCluster.run(
        sc, take_all, {}, 2, 0, tensorboard=True, input_mode=SPARK, log_dir=str(tmp_path), master_node="chief"
    )
    assert "TENSORBOARD_PORT has no effect" in caplog.text
    url = cluster.tensorboard_url() or ""
    with urllib.request.urlopen(url, timeout=START) as page:
        assert b"TensorBoard" in page.read()
    chief, worker = cluster.cluster_info
    assert (chief["job_name"], worker["job_name"]) == ("chief", "worker")
    assert (chief["tb_port"], worker["tb_port"]) == (urlsplit(url).port, 0)
    assert len({chief["port"], worker["port"]} - {0}) == 2
    cluster.shutdown()


def test_queues_of_ones_own_and_keras_3(
    spark_standalone: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(args: Any, ctx: Any) -> None:
        import tensorflow as tf

        train, valid = ctx.get_data_feed(), ctx.get_data_feed(qname_in="valid")
        rows = {"train": train.next_batch(20), "valid": valid.next_batch(5)}
        model = tf.keras.Sequential([tf.keras.Input([1]), tf.keras.layers.Dense(1)])
        compat.export_saved_model(model, args["folder"] + "/model", True)
        facts = rows | {
            "keras": tf.keras.__version__,
            "port": ctx.cluster_spec["worker"][0].rpartition(":")[2],
        }
        Path(args["folder"], "facts.json").write_text(json.dumps(facts))

    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    sc = spark_standalone.sparkContext
    queues = ["input", "output", "error", "valid"]
    cluster = TFCluster.run(sc, learn, {"folder": str(tmp_path)}, 1, 0, input_mode=SPARK, queues=queues)
    cluster.train(sc.parallelize(range(20), 1), 1)
    cluster.train(sc.parallelize(range(100, 105), 1), 1, qname="valid")
    cluster.shutdown()
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert (facts["train"], facts["valid"]) == (list(range(20)), list(range(100, 105)))
    assert facts["keras"].startswith("3.")
    assert int(facts["port"]) == cluster.cluster_info[0]["port"]
    assert (tmp_path / "model" / "saved_model.pb").exists()


def test_a_path_on_hdfs_is_an_error_that_says_what_to_do(spark_standalone: "SparkSession") -> None:
    def resume(args: Any, ctx: Any) -> None:
        import tensorflow as tf

        tf.train.latest_checkpoint(ctx.absolute_path("hdfs://nowhere:9000/model"))

    def run() -> None:
        TFCluster.run(spark_standalone.sparkContext, resume, {}, 1, 0).shutdown()

    with pytest.raises(Exception, match=r"Exception in worker:(.|\n)*hdfs(.|\n)*ctx\.mirror\(folder\)"):
        run()
