"""Found by Spark itself: modules named ``pyspark_*`` with a `DefaultSource` are data sources without registration."""

from emberflow.tfrecord.spark_source import TFRecordSource as DefaultSource

__all__ = ["DefaultSource"]
