"""TensorFlow on real nodes: imported while their rows arrive where the function uses it, unless switched off."""

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from tests.conftest import environment_with_every_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def take_rows(ctx: Any) -> tuple[bool, int]:
    """Say what is imported when the function begins; `dataset` in its code tells that it needs TensorFlow."""
    is_here = "tensorflow" in sys.modules
    return is_here, sum(1 for _ in ctx.arrow()) if ctx.rows() else len(ctx.dataset(batch_size=1))


def resolve(ctx: Any) -> Any:
    """Return what TensorFlow itself finds out, though it was imported before the nodes knew each other."""
    import tensorflow as tf

    found = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return found.cluster_spec().as_dict() == ctx.cluster_spec, tf.config.list_physical_devices("GPU")


@pytest.mark.usefixtures("nothing_left")
def test_nodes_import_tensorflow_while_rows_arrive_if_the_function_uses_it(
    spark_cluster: "SparkSession",
) -> None:
    rows = spark_cluster.range(8)
    options: dict[str, Any] = {"workers": 2, "data": rows, "verbose": False}
    assert ef.run(take_rows, **options).value[0]
    assert not ef.run(take_rows, preload=False, **options).value[0]
    unused = ef.run(lambda ctx: ("tensorflow" in sys.modules, ctx.rows()), **options)
    assert not any(report.value[0] for report in unused.reports)


@pytest.mark.usefixtures("nothing_left")
def test_what_is_set_for_a_node_holds_for_a_preloaded_tensorflow(spark_cluster: "SparkSession") -> None:
    run = ef.run(resolve, workers=2, data=spark_cluster.range(8), verbose=False)
    assert [report.value for report in run.reports] == [(True, [])] * 2


LATE = """
import sys
from emberflow._lazy_keras import load_parts_late
load_parts_late()
import keras
assert not {"sklearn", "matplotlib"} & set(sys.modules)
import tensorflow as tf
assert tf.keras.wrappers.SKLearnClassifier is keras.wrappers.SKLearnClassifier
assert {"sklearn"} <= set(sys.modules)
assert callable(keras.visualization.plot_image_gallery)
assert {"matplotlib"} <= set(sys.modules)
"""


def test_keras_loads_what_needs_scikit_learn_and_matplotlib_when_it_is_used() -> None:
    every = environment_with_every_package() | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", LATE], env=every, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
