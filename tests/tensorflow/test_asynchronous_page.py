"""The programs of docs/asynchronous.md run as they are printed."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from tests.tensorflow.digits_rows import digit_model, digit_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "asynchronous.md"
BLOCK = re.compile(r"^```python\n(def .*?)^```", re.MULTILINE | re.DOTALL)


def build_graph() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None], "x")
    y = tf.compat.v1.placeholder(tf.float32, [None], "y")
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.reduce_mean((weight * x - y) ** 2)
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    return loss, train_op, [weight]


@pytest.mark.full
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.timeout(400)
def test_the_programs_of_the_page_run(spark_gpus: "SparkSession", tmp_path: Path) -> None:
    df = digit_rows(spark_gpus).selectExpr(
        "image", "label", "cast(id % 3 as float) as x", "cast(id % 3 * 2 as float) as y"
    )
    page = PAGE.read_text().replace("/shared/models", str(tmp_path))
    blocks = BLOCK.findall(page)
    assert len(blocks) == 3
    values = []
    for block in blocks:
        names = {"ef": ef, "build_model": digit_model, "build_graph": build_graph, "df": df, "test_df": df}
        exec(block.replace("\nef.run(", "\nresult = ef.run("), names)  # that is the test
        values.append(names["result"].value)
    assert len(values[0]) == len(digit_model().get_weights())
    assert float(values[1][0]) == pytest.approx(2.0, abs=0.1)
    assert values[2]["val_accuracy"][-1] > 0.9
    assert (tmp_path / "digits" / "1" / "saved_model.pb").exists()
