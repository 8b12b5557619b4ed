"""The inputs and outputs of a stored model, read on the driver or, where it cannot see the model, on an executor."""

import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import cloudpickle

from emberflow import storage
from emberflow._driver.interpreter import map_in_arrow
from emberflow._score.model_facts import ModelFacts
from emberflow._score.model_source import (
    LoadOptions,
    describe_path,
    fingerprint,
    is_keras_file,
    model_not_found,
)
from emberflow._score.model_versions import model_at
from emberflow.errors import EmberflowError, ModelError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "facts string, key string, path string, problem string, fix string"
MARK = b"EMBERFLOW:"  # separates the result from what libraries print before it


def describe_model(
    spark: "SparkSession", path: str, load_options: LoadOptions
) -> tuple[ModelFacts, str, str]:
    """Return a stored model's facts, a key of its content, and its path, which is that of its newest version.

    A task reads it where this process cannot.
    """
    try:
        if storage.exists(path):
            return _describe_locally(model_at(path), load_options)
        if not storage.is_local(path):
            raise model_not_found(path)
    except (StorageError, ImportError):
        pass  # no driver for this storage, no network route, or no TensorFlow here: executors may have them
    return _describe_on_executor(spark, path, load_options)


def _describe_locally(path: str, load_options: LoadOptions) -> tuple[ModelFacts, str, str]:
    """Describe the model in this process, or in a child without GPUs if that would import TensorFlow here.

    TensorFlow allocates all memory of all visible GPUs, also of those that local tasks need.
    """
    if not is_keras_file(path) or "tensorflow" in sys.modules:
        return describe_path(path, load_options), fingerprint(path), path
    order = cloudpickle.dumps((storage.current_settings(), path, load_options))
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "emberflow._score.describe"]
    done = subprocess.run(command, input=order, capture_output=True, env=environment, check=False)
    if done.returncode:
        raise ModelError(
            f"The model {path} cannot be described: {done.stderr.decode(errors='replace')[-2000:]}",
            fix="Load it with keras.saving.load_model here to see why.",
        )
    return _read(pickle.loads(done.stdout.rpartition(MARK)[2]))


def _describe_on_executor(
    spark: "SparkSession", path: str, load_options: LoadOptions
) -> tuple[ModelFacts, str, str]:
    order = cloudpickle.dumps((storage.current_settings(), path, load_options))
    task = functools.partial(_describe_task, order)
    row = map_in_arrow(spark.range(0, 1, 1, 1), task, SCHEMA).collect()[0]
    return _read((row["facts"], row["key"], row["path"], row["problem"], row["fix"]))


def _describe_task(order: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for _ in batches:
        pass
    names = ("facts", "key", "path", "problem", "fix")
    values = _description(*pickle.loads(order))
    yield pa.RecordBatch.from_pydict({name: [value] for name, value in zip(names, values, strict=True)})


def _description(
    settings: storage.StorageSettings, path: str, load_options: LoadOptions
) -> tuple[str, str, str, str, str]:
    storage.apply_settings(settings)
    try:
        if not storage.exists(path):
            raise model_not_found(path)
        path = model_at(path)
        return describe_path(path, load_options).to_json(), fingerprint(path), path, "", ""
    except EmberflowError as error:
        return "", "", "", error.problem, error.fix


def _read(answer: tuple[str, str, str, str, str]) -> tuple[ModelFacts, str, str]:
    facts, key, path, problem, fix = answer
    if problem:
        raise ModelError(problem, fix=fix)
    return ModelFacts.from_json(facts), key, path


if __name__ == "__main__":
    reply = _description(*pickle.loads(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(MARK + pickle.dumps(reply))
