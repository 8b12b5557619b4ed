"""What TensorFlow itself says of a path on HDFS, and what old programs are told."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.full

PROGRAM = """
import json
from tensorflowonspark.remote_paths import explained_paths

URL = "hdfs://nowhere:9000/data"
told = {}

def tell(name, call):
    try:
        with explained_paths():
            told[name] = ["returned", repr(call())]
    except Exception as error:
        told[name] = [type(error).__name__, str(error)]

def fit(callback):
    model = new_model()
    model.fit(tf.zeros([8, 2]), tf.zeros([8, 1]), verbose=0, callbacks=[callback])

def new_model():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.build([None, 2])
    model.compile("sgd", "mse")
    return model

def write(path):
    with gfile.GFile(path, "w") as file:
        file.write("text")

def write_summary(path):
    with tf.summary.create_file_writer(path).as_default():
        tf.summary.scalar("loss", 1.0, step=1)
        tf.summary.flush()

if BEFORE:
    import tensorflow as tf
    tf.keras.Sequential
tell("prepare", lambda: None)
import tensorflow as tf

gfile, callbacks, model = tf.io.gfile, tf.keras.callbacks, new_model()
checkpoint = tf.train.Checkpoint(step=tf.Variable(1))
tell("dataset", lambda: list(tf.data.TFRecordDataset(URL + "/part-00000")))
tell("list_files", lambda: list(tf.data.Dataset.list_files(URL + "/part-*")))
for name in ("exists", "glob", "isdir", "listdir", "makedirs", "mkdir", "remove", "rmtree", "stat"):
    tell(name, lambda: getattr(gfile, name)(URL))
tell("walk", lambda: list(gfile.walk(URL)))
tell("rename", lambda: gfile.rename(URL, URL + "2"))
tell("copy", lambda: gfile.copy(URL, URL + "2"))
tell("read", lambda: gfile.GFile(URL + "/x").read())
tell("write", lambda: write(URL + "/x"))
tell("checkpoint save", lambda: checkpoint.save(URL + "/ckpt"))
tell("checkpoint restore", lambda: checkpoint.restore(URL + "/ckpt-1"))
tell("manager", lambda: tf.train.CheckpointManager(checkpoint, URL, 3).restore_or_initialize())
tell("manager save", lambda: tf.train.CheckpointManager(checkpoint, URL, 3).save())
tell("latest", lambda: tf.train.latest_checkpoint(URL))
tell("saved model", lambda: tf.saved_model.save(tf.Module(), URL))
tell("load saved model", lambda: tf.saved_model.load(URL))
tell("summary", lambda: write_summary(URL))
for suffix in ("", ".h5", ".keras"):
    if suffix or not IS_KERAS_3:
        tell("save" + suffix, lambda: model.save(URL + "/model" + suffix))
        tell("load_model" + suffix, lambda: tf.keras.models.load_model(URL + "/model" + suffix))
        tell("checkpoints" + suffix, lambda: fit(callbacks.ModelCheckpoint(URL + "/{epoch}" + suffix)))
for suffix in ("", ".weights.h5"):
    if suffix or not IS_KERAS_3:
        path = URL + "/model" + suffix
        tell("save_weights" + suffix, lambda: model.save_weights(path))
        tell("load_weights" + suffix, lambda: model.load_weights(path))
        tell("weights" + suffix, lambda: fit(callbacks.ModelCheckpoint(path, save_weights_only=True)))
tell("export", lambda: model.export(URL))
tell("tensorboard", lambda: fit(callbacks.TensorBoard(URL)))
tell("log", lambda: fit(callbacks.CSVLogger(URL + "/log.csv")))
tell("backup", lambda: fit(callbacks.BackupAndRestore(URL)))
tell("no file", lambda: gfile.exists("/no-such"))
tell("folder", lambda: gfile.isdir("file:///"))
tell("no checkpoint", lambda: tf.train.latest_checkpoint("/no-such"))
tell("local", lambda: model.save("model.h5"))
tell("own", lambda: open("hdfs://nowhere/x"))
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("is_imported_before", "is_keras_3"), [(False, False), (True, True)], ids=["tf_keras", "Keras 3"]
)
def test_each_way_to_a_remote_path_says_what_to_do(
    tmp_path: Path, is_imported_before: bool, is_keras_3: bool
) -> None:
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    environment["TF_USE_LEGACY_KERAS"] = "0" if is_keras_3 else "1"
    done = subprocess.run(
        [sys.executable, "-c", f"BEFORE, IS_KERAS_3 = {is_imported_before}, {is_keras_3}\n{PROGRAM}"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("prepare") == ["returned", "None"]
    local = [told.pop(name)[1] for name in ("no file", "folder", "no checkpoint", "local")]
    assert local == ["False", "True", "None", "None"]
    assert told.pop("own")[0] == "FileNotFoundError"  # TensorFlow was not asked
    for name, (kind, text) in told.items():
        assert kind == "StorageError", (name, kind, text)
        assert "hdfs" in text, (name, text)
        assert "Fix: Pass it paths below ctx.mirror(folder)" in text, (name, text)
    assert [path.name for path in tmp_path.iterdir()] == ["model.h5"]  # nothing in a folder "hdfs:"
