"""Spark's base classes for data sources in Python; empty ones where this Spark lacks them.

Spark 3.5 has none at all, and Spark 4.0 no Arrow writer for streams. Our classes exist there too, since
`ef.tfrecord.read` and `ef.tfrecord.write` share their code; Spark never calls them.
"""

from typing import Any

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
        WriterCommitMessage,
    )
except ImportError:  # Spark 3.5

    class _Missing:
        def __init__(self, options: Any = None) -> None:
            """Take what the class of a newer Spark takes."""
            self.options = options

    DataSource = DataSourceReader = DataSourceStreamReader = InputPartition = _Missing  # type: ignore[assignment,misc]
    DataSourceArrowWriter = DataSourceWriter = DataSourceStreamWriter = _Missing  # type: ignore[assignment,misc]
    WriterCommitMessage = _Missing  # type: ignore[assignment,misc]

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0
    DataSourceStreamArrowWriter = DataSourceStreamWriter  # type: ignore[assignment,misc]

__all__ = [
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "DataSourceStreamWriter",
    "DataSourceWriter",
    "InputPartition",
    "WriterCommitMessage",
]
