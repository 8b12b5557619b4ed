"""Runs whose traffic is encrypted: because you ask for it, or because Spark encrypts its own."""

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

import emberflow as ef
from tests.sessions import Sessions, await_executors, classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow._node.context import Context

SECRET = "a text that nobody else may read"

pytestmark = pytest.mark.usefixtures("nothing_left")


def train(ctx: "Context") -> dict[str, Any]:
    """Train on rows of the DataFrame; return the weights, and what this node knows of its own traffic and files."""
    import keras

    keras.utils.set_random_seed(3)
    model = ctx.distribute(
        keras.Sequential([keras.Input((1,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    )
    model.compile(keras.optimizers.SGD(0.01), "mse")
    rows = ctx.dataset("train", features="x", label="y", batch_size=10)
    model.fit(rows, epochs=2, verbose=0)
    epochs = ctx.dataset("train", columns=["id"], batch_size=10)
    on_disk = spool_on_disk()
    return {
        "weights": model.get_weights(),
        "encrypts": ctx._services.parallel.transport().peers.links[0]._encrypts,
        "epochs": [[int(row) for batch in epochs for row in batch["id"]] for _ in range(2)],
        "spool_bytes": len(on_disk),
        "texts_on_disk": on_disk.count(SECRET.encode()),
    }


def spool_on_disk() -> bytes:
    """Return the content of the spool's file, which has no name, as the disk has it."""
    task = Path(
        f"/proc/{psutil.Process().parent().ppid()}/fd"
    )  # the node's parent is the keeper, whose is the task
    found = [
        fd for fd in task.iterdir() if re.search(r"(/#|emberflow-spool-).*\(deleted\)$", str(fd.readlink()))
    ]
    assert len(found) == 1, found
    return found[0].read_bytes()


def strategies_here(ctx: "Context") -> str:
    """Ask for what TensorFlow cannot encrypt."""
    try:
        ctx.strategy()
    except ef.EncryptionError as error:
        return error.fix
    return ""


def rows_of(spark: "SparkSession") -> Any:
    columns = ("id", "float(id) / 60 as x", "float(id) / 30 as y", f"concat('{SECRET}', id) as text")
    return spark.range(60).selectExpr(*columns)


def weights_differ(one: dict[str, Any], other: dict[str, Any]) -> float:
    pairs = zip(one["weights"], other["weights"], strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def test_encrypted_training_gives_the_same_weights(spark_cluster: "SparkSession") -> None:
    plain = ef.run(train, workers=2, data=rows_of(spark_cluster), verbose=False).value
    encrypted = ef.run(train, workers=2, data=rows_of(spark_cluster), encrypt=True, verbose=False).value
    assert (plain["encrypts"], encrypted["encrypts"]) == (False, True)
    assert weights_differ(plain, encrypted) <= 1e-5
    assert plain["texts_on_disk"] == len(plain["epochs"][0])


@pytest.fixture
def spark_encrypted(sessions: Sessions) -> "Iterator[SparkSession]":
    """A Spark that encrypts its traffic and its local files."""
    sessions.close()
    asked = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(16),
        "spark.network.crypto.enabled": "True",
        "spark.io.encryption.enabled": "true",
    }
    with classic("local-cluster[2,1,1024]", asked) as session:
        await_executors(session)
        yield session


@pytest.mark.full
def test_a_spark_that_encrypts_gets_encrypted_runs_without_being_asked(
    spark_encrypted: "SparkSession",
) -> None:
    result = ef.run(train, workers=2, data=rows_of(spark_encrypted), verbose=False)
    assert result.value["encrypts"]
    for epoch in range(2):
        rows = [row for report in result.reports for row in report.value["epochs"][epoch]]
        assert sorted(rows) == list(range(60))
    assert result.value["epochs"][0] != result.value["epochs"][1]
    for report in result.reports:
        assert report.value["spool_bytes"] > 1000
        assert report.value["texts_on_disk"] == 0
    with pytest.raises(ef.EncryptionError, match=r"spark\.network\.crypto\.enabled=true"):
        ef.run(train, workers=2, data=rows_of(spark_encrypted), transport="collectives")
    assert "allow_unencrypted=True" in ef.run(strategies_here, workers=2, verbose=False).value
    assert os.environ.get("TF_CONFIG") is None
