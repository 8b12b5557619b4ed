"""Hadoop's settings for the processes of a session that open URLs: driver, nodes and tasks."""

from typing import TYPE_CHECKING

from emberflow._driver.hadoop_configuration import hadoop_configuration
from emberflow.storage import StorageSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What the drivers of HDFS and of object stores read; all else of Hadoop's is no matter of theirs.
PREFIXES = ("fs.", "dfs.", "hadoop.security.", "hadoop.rpc.", "ipc.", "google.cloud.")
USER = "hadoop.user"


def storage_settings_of(spark: "SparkSession | None") -> StorageSettings:
    """Return the settings of a session; without one, those of this process' environment."""
    configuration = hadoop_configuration(spark)
    found = {name: value for name, value in configuration.values().items() if name.startswith(PREFIXES)}
    user = configuration.user()
    return StorageSettings(hadoop=found | ({USER: user} if user else {}))
