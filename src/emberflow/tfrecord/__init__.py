"""TFRecord files as a Spark data source: no jar, classic Spark and Spark Connect.

Reading and writing need no call of this package, since Spark finds the data source by its name::

    spark.read.format("tfrecord").load("hdfs:///mnist/train")
    df.write.format("tfrecord").mode("overwrite").save("hdfs:///out")

On Spark 3.5, which has no data sources in Python, `read` and `write` do the same.

Importing this package imports neither TensorFlow nor Spark; reading and writing import no TensorFlow either.
"""

from emberflow.tfrecord.api import from_example, read, register, to_example, write

__all__ = ["from_example", "read", "register", "to_example", "write"]
