"""The one place that decides which URL a path of the user means. Nodes and tasks only receive what it returns.

Spark takes a path without a scheme for one on Hadoop's default file system (``fs.defaultFS``), and a relative one for
one in the user's home there. Emberflow does the same, so that what Spark writes and what Emberflow writes under one
path end in one place.
"""

import dataclasses
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from emberflow import storage
from emberflow._driver.hadoop_configuration import hadoop_configuration
from emberflow._driver.storage_settings import storage_settings_of
from emberflow._plan.path_rules import PathRules
from emberflow.config import RunConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD = "spark.emberflow.record"


def resolve_path(spark: "SparkSession | None", path: str) -> str:
    """Return the URL that a path means, and have this process open it with the session's settings.

    Args:
        spark: The session; None takes the one that is there, and without any the files of HADOOP_CONF_DIR.
        path: What the user passed: with a scheme, absolute or relative; patterns stay as they are.

    Returns:
        A URL, or an absolute path on local disk where that is the default file system.

    Raises:
        ConfigError: The session is one of Spark Connect, and nobody has said its default file system.
    """
    session = spark or current_session()
    text = str(path)
    rules = path_rules_of(session)
    resolved = rules.resolve(os.path.expanduser(text) if rules.is_local else text)  # noqa: PTH111 - it may be a URL
    if not storage.is_local(resolved):
        storage.apply_settings(storage_settings_of(session))
    return resolved


def path_rules_of(spark: "SparkSession | None") -> PathRules:
    """Return where a session's paths without a scheme are, for nodes too."""
    configuration = hadoop_configuration(spark)
    rules = PathRules(default_fs=configuration.default_fs(), home=None)
    return dataclasses.replace(rules, home=_working_folder() if rules.is_local else configuration.home())


def _working_folder() -> str | None:
    with suppress(FileNotFoundError):  # it was deleted; absolute paths need none
        return str(Path.cwd())
    return None


def with_resolved_paths(spark: "SparkSession | None", config: RunConfig) -> RunConfig:
    """Return the options of a run with the paths on shared storage resolved; `spool_dir` is local to each host."""
    return dataclasses.replace(
        config,
        checkpoint_dir=config.checkpoint_dir and resolve_path(spark, config.checkpoint_dir),
        tensorboard=config.tensorboard and resolve_path(spark, config.tensorboard),
        record=record_path(spark, config.record),
    )


def record_path(spark: "SparkSession | None", record: str | None) -> str | None:
    """Return the folder for records of runs: the caller's, or that of the session's setting."""
    path = record or (spark.conf.get(RECORD, None) if spark is not None else None)
    return resolve_path(spark, path) if path else None


def current_session() -> "SparkSession | None":
    """Return the session of this process, also where it is not active in this thread; None if there is none."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None and SparkContext._active_spark_context is not None:  # noqa: SLF001 - no public function
        return SparkSession.builder.getOrCreate()
    return session
