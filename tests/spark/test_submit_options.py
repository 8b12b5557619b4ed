"""The command lines of `emberflow render spark-submit`, read by Spark's own parser of options."""

import shlex
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from emberflow.deploy import render
from tests.unit.deploy.renderings import DESCRIPTIONS, job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def commands(description: str) -> list[list[str]]:
    """Return the words of each command, as a shell reads them."""
    text = render(job(description), "spark-submit").replace("\\\n", "")  # shlex does not join lines
    lines = shlex.split(text, comments=True)
    starts = [place for place, word in enumerate(lines) if word == "spark-submit"]
    return [lines[start + 1 : end] for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def parsed(spark: "SparkSession", words: list[str]) -> Any:
    jvm: Any = spark.sparkContext._jvm
    sequence = jvm.PythonUtils.toSeq(words)
    environment = jvm.PythonUtils.toScalaMap(
        {"HADOOP_CONF_DIR": "/etc/hadoop/conf"}
    )  # YARN's lines ask for it
    return jvm.org.apache.spark.deploy.SparkSubmitArguments(sequence, environment)


def test_spark_understands_every_command(spark_local: "SparkSession") -> None:
    for description in DESCRIPTIONS:
        masters = []
        for words in commands(description):
            arguments = parsed(spark_local, words)
            masters.append(arguments.master().split(":")[0])
            assert arguments.name() == job(description).name
            assert arguments.isPython()
            assert arguments.primaryResource().endswith("train.py")
            assert int(arguments.numExecutors()) == sum(
                each.replicas for each in job(description).roles.values()
            )
            assert arguments.deployMode() == (
                "client" if arguments.master().startswith("spark") else "cluster"
            )
        assert masters == ["spark", "yarn", "k8s"]


@pytest.mark.parametrize(
    ("word", "other"),
    [("--deploy-mode", "--deploy-mod"), ("cluster", "somewhere"), ("spark.executor.instances=2", "nothing")],
)
def test_spark_refuses_a_wrong_command(spark_local: "SparkSession", word: str, other: str) -> None:
    words = commands("synchronous")[1]
    assert word in words
    parsed(spark_local, words)
    with pytest.raises(Py4JJavaError):
        parsed(spark_local, [other if each == word else each for each in words])
