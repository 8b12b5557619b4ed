"""What a stored model takes and gives, asked where it can be answered: here, or on an executor."""

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
from emberflow._score.model_source import Asked, describe_path, fingerprint, is_keras_file, no_model
from emberflow.errors import EmberflowError, ModelError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "facts string, key string, problem string, fix string"
MARK = b"EMBERFLOW:"  # whatever a library prints comes before it


def described(spark: "SparkSession", path: str, asked: Asked) -> tuple[ModelFacts, str]:
    """Return a stored model's facts and a key of its content; a task looks where this process cannot see it."""
    try:
        if storage.exists(path):
            return _described_here(path, asked)
        if not storage.is_local(path):
            raise no_model(path)
    except (StorageError, ImportError):
        pass  # no driver for this storage, or no way to it, or no TensorFlow: executors may have them
    return _described_there(spark, path, asked)


def _described_here(path: str, asked: Asked) -> tuple[ModelFacts, str]:
    """Describe in this process, or, where TensorFlow would first come in by that, in one without GPUs.

    TensorFlow takes all memory of all GPUs that it sees, also those that local tasks shall have.
    """
    if not is_keras_file(path) or "tensorflow" in sys.modules:
        return describe_path(path, asked), fingerprint(path)
    order = cloudpickle.dumps((path, asked))
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "emberflow._score.describe"]
    done = subprocess.run(command, input=order, capture_output=True, env=environment, check=False)
    if done.returncode:
        raise ModelError(
            f"The model {path} cannot be described: {done.stderr.decode(errors='replace')[-2000:]}",
            fix="Load it with keras.saving.load_model here to see why.",
        )
    return _read(pickle.loads(done.stdout.rpartition(MARK)[2]))


def _described_there(spark: "SparkSession", path: str, asked: Asked) -> tuple[ModelFacts, str]:
    task = functools.partial(_describe_task, cloudpickle.dumps((path, asked)))
    row = map_in_arrow(spark.range(0, 1, 1, 1), task, SCHEMA).collect()[0]
    return _read((row["facts"], row["key"], row["problem"], row["fix"]))


def _describe_task(order: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for _ in batches:
        pass
    facts, key, problem, fix = _answer(*pickle.loads(order))
    yield pa.RecordBatch.from_pydict({"facts": [facts], "key": [key], "problem": [problem], "fix": [fix]})


def _answer(path: str, asked: Asked) -> tuple[str, str, str, str]:
    try:
        if not storage.exists(path):
            raise no_model(path)
        return describe_path(path, asked).to_json(), fingerprint(path), "", ""
    except EmberflowError as error:
        return "", "", error.problem, error.fix


def _read(answer: tuple[str, str, str, str]) -> tuple[ModelFacts, str]:
    facts, key, problem, fix = answer
    if problem:
        raise ModelError(problem, fix=fix)
    return ModelFacts.from_json(facts), key


if __name__ == "__main__":
    reply = _answer(*pickle.loads(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(MARK + pickle.dumps(reply))
