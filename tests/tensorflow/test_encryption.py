"""Runs whose traffic is encrypted: because you ask for it, or because Spark encrypts its own."""

import os
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef
from tests.sessions import Sessions, await_executors, classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow._node.context import Context

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
    maps = open("/proc/self/maps").read()  # noqa: PTH123, SIM115 - one line
    return {
        "weights": model.get_weights(),
        "encrypts": ctx._services.parallel.transport()._link._encrypts,
        "spool_in_memory": "memfd:emberflow-spool" in maps,
        "spool_on_disk": "emberflow-spool-" in maps or "/#" in maps,
    }


def strategies_here(ctx: "Context") -> str:
    """Ask for what TensorFlow cannot encrypt."""
    try:
        ctx.strategy()
    except ef.EncryptionError as error:
        return error.fix
    return ""


def rows_of(spark: "SparkSession") -> Any:
    return spark.range(60).selectExpr("float(id) / 60 as x", "float(id) / 30 as y")


def weights_differ(one: dict[str, Any], other: dict[str, Any]) -> float:
    pairs = zip(one["weights"], other["weights"], strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def test_encrypted_training_gives_the_same_weights(spark_cluster: "SparkSession") -> None:
    plain = ef.run(train, workers=2, data=rows_of(spark_cluster), verbose=False).value
    encrypted = ef.run(train, workers=2, data=rows_of(spark_cluster), encrypt=True, verbose=False).value
    assert (plain["encrypts"], encrypted["encrypts"]) == (False, True)
    assert weights_differ(plain, encrypted) <= 1e-5
    assert (plain["spool_in_memory"], plain["spool_on_disk"]) == (False, True)


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


def test_a_spark_that_encrypts_gets_encrypted_runs_without_being_asked(
    spark_encrypted: "SparkSession",
) -> None:
    result = ef.run(train, workers=2, data=rows_of(spark_encrypted), verbose=False)
    assert result.value["encrypts"]
    assert (result.value["spool_in_memory"], result.value["spool_on_disk"]) == (True, False)
    with pytest.raises(ef.EncryptionError, match=r"spark\.network\.crypto\.enabled=true"):
        ef.run(train, workers=2, data=rows_of(spark_encrypted), transport="collectives")
    assert "allow_unencrypted=True" in ef.run(strategies_here, workers=2, verbose=False).value
    assert os.environ.get("TF_CONFIG") is None
