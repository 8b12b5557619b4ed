"""`TFEstimator`, `TFModel` and `dfutil` as old programs use them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensorflowonspark import compat, dfutil
from tensorflowonspark.pipeline import TFEstimator, TFModel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.full]

WEIGHTS = np.array([3.14, 1.618])


def fit_line(args: Any, ctx: Any) -> None:
    """Linear regression as the old tests had it: a generator of single rows, 90 % of the steps, terminate."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation="linear", input_shape=[2])])
        model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=0.2), loss="mse", metrics=["mse"])
    feed = ctx.get_data_feed(input_mapping=args.input_mapping)

    def rows() -> Any:
        while not feed.should_stop():
            batch = feed.next_batch(1)
            if not batch["x"]:
                return
            yield batch["x"][0], batch["y_"][0]

    shapes = (tf.TensorShape([2]), tf.TensorShape([1]))
    dataset = tf.data.Dataset.from_generator(rows, (tf.float32, tf.float32), shapes)
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    dataset = dataset.with_options(options).batch(args.batch_size)
    steps = 1000 * 0.9 // (args.batch_size * ctx.num_workers)
    callbacks = [
        tf.keras.callbacks.ModelCheckpoint(
            filepath=args.model_dir + "/weights-{epoch:04d}", save_weights_only=True
        )
    ]
    model.fit(dataset, epochs=args.epochs, steps_per_epoch=steps, callbacks=callbacks, verbose=0)
    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")
    feed.terminate()


@pytest.mark.timeout(900)
def test_an_estimator_and_its_model(spark_standalone: "SparkSession", tmp_path: Path) -> None:
    features = np.random.default_rng(1234).random((1000, 2))
    rows = [(each.tolist(), [float(each @ WEIGHTS)]) for each in features]
    frame = spark_standalone.createDataFrame(
        spark_standalone.sparkContext.parallelize(rows, 2), ["col1", "col2"]
    )
    estimator = (
        TFEstimator(fit_line, {})
        .setInputMapping({"col1": "x", "col2": "y_"})
        .setModelDir(str(tmp_path / "model"))
        .setExportDir(str(tmp_path / "export"))
        .setClusterSize(2)
        .setMasterNode("chief")
        .setNumPS(0)
        .setBatchSize(1)
        .setEpochs(1)
    )
    model = estimator.fit(frame)
    assert isinstance(model, TFModel)
    assert list((tmp_path / "model").glob("weights-0001*"))
    asked = spark_standalone.createDataFrame([([1.0, 1.0], [0.0])], ["c1", "c2"])
    scored = (
        model.setTagSet("serve")
        .setSignatureDefKey("serving_default")
        .setInputMapping({"c1": "dense_input"})
        .setOutputMapping({"dense": "cout"})
        .transform(asked)
    )
    assert scored.dtypes == [("cout", "array<double>")]
    (row,) = scored.collect()
    assert row.cout[0] == pytest.approx(WEIGHTS.sum(), abs=0.01)
    with pytest.raises(Exception, match="requires a SavedModel"):
        TFModel({}).transform(asked)


def test_tfrecord_files_there_and_back(spark_standalone: "SparkSession", tmp_path: Path) -> None:
    sc = spark_standalone.sparkContext
    row = ("text string", 1, [2, 3, 4, 5], -1.1, [-2.2, -3.3], bytearray(b"\xff\xfe"), True)
    frame = spark_standalone.createDataFrame([row], list("abcdefg"))
    path = str(tmp_path / "tfr")
    dfutil.saveAsTFRecords(frame, path)
    loaded = dfutil.loadTFRecords(sc, path, binary_features=["f"])
    kinds = ["string", "bigint", "array<bigint>", "double", "array<double>", "binary", "bigint"]
    assert [kind for _, kind in loaded.dtypes] == kinds
    (found,) = loaded.collect()
    assert (found.a, found.b, found.c, bytes(found.f), found.g) == (
        "text string",
        1,
        [2, 3, 4, 5],
        b"\xff\xfe",
        1,
    )
    assert (found.d, found.e) == (pytest.approx(-1.1, abs=1e-6), pytest.approx([-2.2, -3.3], abs=1e-6))
    same = loaded
    assert (dfutil.isLoadedDF(frame), dfutil.isLoadedDF(same)) == (False, True)
    assert not dfutil.isLoadedDF(loaded.filter("a = 'other'"))
    assert dfutil.loadedDF[loaded] == path
    with pytest.raises(Exception, match="Unsupported dtype: date"):
        dfutil.saveAsTFRecords(frame.selectExpr("current_date() as d"), str(tmp_path / "other"))
    examples = frame.rdd.mapPartitions(dfutil.toTFExample(frame.dtypes)).collect()
    (again,) = dfutil.fromTFExample(examples, ["f"])
    assert (again.a, again.c, bytes(again.f)) == ("text string", [2, 3, 4, 5], b"\xff\xfe")
