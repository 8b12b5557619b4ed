"""A program for TensorFlowOnSpark whose data, checkpoints, logs and model are on HDFS."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from emberflow import storage
from tensorflowonspark import TFCluster, compat, dfutil
from tensorflowonspark.pipeline import TFModel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


def fit_line(args: Any, ctx: Any) -> None:
    """Train on TFRecord files as the old examples did, with `ctx.mirror` where they had `ctx.absolute_path`."""
    import tensorflow as tf

    data, model_dir = ctx.mirror(args["data"]), ctx.mirror(args["model_dir"])
    features = {"x": tf.io.FixedLenFeature([2], tf.float32), "y": tf.io.FixedLenFeature([1], tf.float32)}

    def parse(record: Any) -> Any:
        row = tf.io.parse_single_example(record, features)
        return row["x"], row["y"]

    files = tf.io.gfile.glob(data + "/part-*")
    rows = tf.data.TFRecordDataset(files).map(parse).batch(10)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=[2])])
    model.compile(tf.keras.optimizers.Adam(0.2), "mse")
    latest = tf.train.latest_checkpoint(model_dir)
    if latest:
        model.load_weights(latest)
    before = float(model.evaluate(rows, verbose=0))
    callbacks = [
        tf.keras.callbacks.ModelCheckpoint(model_dir + "/weights-{epoch:04d}", save_weights_only=True),
        tf.keras.callbacks.TensorBoard(model_dir + "/logs"),
    ]
    model.fit(rows, epochs=args["epochs"], verbose=0, callbacks=callbacks)
    with tf.io.gfile.GFile(model_dir + "/facts.json", "w") as file:
        file.write(
            json.dumps({"before": before, "after": float(model.evaluate(rows, verbose=0)), "from": latest})
        )
    compat.export_saved_model(model, ctx.absolute_path(args["export_dir"]), ctx.job_name == "chief")


@pytest.mark.usefixtures("nothing_left")
def test_data_checkpoints_logs_and_model_on_hdfs(spark_cluster: "SparkSession", default_fs: str) -> None:
    rows = [([x / 10, y / 10], [3 * x / 10 + 2 * y / 10]) for x in range(10) for y in range(10)]
    dfutil.saveAsTFRecords(spark_cluster.createDataFrame(rows, ["x", "y"]), f"{default_fs}/old/data")
    args = {"data": "/old/data", "model_dir": "/old/model", "export_dir": "/old/export", "epochs": 20}
    facts = []
    for _ in range(2):
        cluster = TFCluster.run(spark_cluster.sparkContext, fit_line, args, 1, 0, master_node="chief")
        cluster.shutdown()
        facts.append(json.loads(storage.read_bytes(f"{default_fs}/old/model/facts.json")))
    first, second = facts
    assert first["from"] is None
    assert second["from"].endswith("/old/model/weights-0020")  # the checkpoint of the first run
    assert second["before"] == pytest.approx(first["after"], rel=1e-5)
    names = {file.path.rpartition("/")[2] for file in storage.list_files(f"{default_fs}/old/model")}
    assert {"checkpoint", "weights-0020.index"} <= names
    assert any("tfevents" in name for name in names)
    model = TFModel({}).setExportDir(f"{default_fs}/old/export").setSignatureDefKey("serving_default")
    model.setInputMapping({"x": "dense_input"}).setOutputMapping({"dense": "y"})
    (scored,) = model.transform(spark_cluster.createDataFrame([([1.0, 1.0],)], ["x"])).collect()
    assert scored.y[0] == pytest.approx(5.0, abs=0.5)
