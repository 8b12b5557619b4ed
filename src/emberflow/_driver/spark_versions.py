"""What the running Spark can do: the one place that knows from which version on."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emberflow.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType


@dataclass(frozen=True, kw_only=True)
class Feature:
    """Something that not every Spark can do.

    Attributes:
        what: What a user would call it.
        since: The first version with it.
    """

    what: str
    since: tuple[int, int]


CONNECT = Feature(what="A session of Spark Connect", since=(4, 0))
DATA_SOURCES = Feature(what='The format "tfrecord"', since=(4, 0))
BATCHES_BY_BYTES = Feature(what="spark.sql.execution.arrow.maxBytesPerBatch", since=(4, 0))
FRAME_PROFILES = Feature(what="Scoring with GPUs that the session does not give every task", since=(4, 0))
ARROW_UDFS = Feature(what="ef.tfrecord.to_example and from_example", since=(4, 1))
REPARTITION_BY_ID = Feature(what="df.repartitionById", since=(4, 1))


def offers(spark: "SparkSession", feature: Feature) -> bool:
    """Tell whether a session has a feature: on Spark Connect both the client and the server must have it."""
    import pyspark

    return min(parse_version(spark.version), parse_version(pyspark.__version__)) >= feature.since


def check_offers(spark: "SparkSession", feature: Feature, *, fix: str) -> None:
    """Refuse what this Spark cannot do, and say from which one on it works.

    Args:
        spark: The session.
        feature: What is asked for.
        fix: What works on this Spark instead.
    """
    if not offers(spark, feature):
        major, minor = feature.since
        raise ClusterError(
            f"{feature.what} needs Spark {major}.{minor} or newer. Received: Spark {spark.version}.", fix=fix
        )


def parse_schema(text: str) -> "DataType":
    """Return the type that a text of SQL such as ``"image array<float>, label long"`` names."""
    from pyspark.sql import types

    if hasattr(types.DataType, "fromDDL"):
        return types.DataType.fromDDL(text)
    return types._parse_datatype_string(text)  # noqa: SLF001 - Spark 3.5 has no public function


def parse_version(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version; vendors add words of their own.

    >>> parse_version("3.5.6-amzn-0"), parse_version("4.1.0.dev2")
    ((3, 5), (4, 1))
    """
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ClusterError(
            f"Spark's version must begin with two numbers. Received: {text!r}.",
            fix="Check that this is a session of Apache Spark, and its PySpark: pip show pyspark",
        )
    return int(found[1]), int(found[2])
