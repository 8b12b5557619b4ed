"""The data source under the name of the older connector, ``tfrecords``; found by Spark itself."""

from emberflow.tfrecord.spark_source import TFRecordsSource as DefaultSource

__all__ = ["DefaultSource"]
