"""The Spark session of a command, and the files that it reads and writes."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FormatOption = Annotated[
    str | None, typer.Option("--format", help="Format of the rows, if the name of the path does not say it.")
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        help='Columns of csv without a header: "label long, image float[784]"; an array takes so many fields.'
    ),
]
InputModeOption = Annotated[
    str,
    typer.Option(
        help="spark: Spark reads the rows. files: nodes and tasks read tfrecord or parquet themselves."
    ),
]
ReaderOption = Annotated[list[str] | None, typer.Option(help="An option of Spark's reader, name=value.")]
MasterOption = Annotated[
    str | None,
    typer.Option(
        help="spark://..., local[2], yarn, k8s://... or sc://...; by default the environment's Spark."
    ),
]
FORMATS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".parquet": "parquet",
    ".orc": "orc",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
}


@contextmanager
def session(master: str | None, app_name: str) -> "Iterator[SparkSession]":
    """Yield the active session, or a new one on `master` or as the environment says; stop only a new one."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # no other program shares this process
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # otherwise TensorFlow logs a page about CPU features
    builder = SparkSession.builder.appName(app_name)
    if (master or "").startswith("sc://"):
        builder = builder.remote(str(master))
    else:
        _find_java()
        builder = builder.master(master) if master else builder
        builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _find_java() -> None:
    """Set JAVA_HOME for the JVM that PySpark starts; spark-submit has one already, and a remote Spark needs none."""
    from emberflow.local.java import find_java_home

    if "PYSPARK_GATEWAY_PORT" not in os.environ and "SPARK_REMOTE" not in os.environ:
        os.environ.setdefault("JAVA_HOME", str(find_java_home()))


def read_rows(
    spark: "SparkSession",
    path: str,
    source_format: str | None,
    options: Sequence[str],
    columns: str | None = None,
) -> "DataFrame":
    """Read rows in any format of Spark's, or TFRecord; by default the format follows from the path's ending.

    Args:
        spark: The session.
        path: Where the rows are.
        source_format: Their format.
        options: Options of the reader, ``name=value``.
        columns: Names and types of the columns of csv files without a header.
    """
    if columns is not None:
        from emberflow.cli.csv_columns import read_lines

        return read_lines(spark, path, columns, parse_pairs(options).get("sep", ","))
    chosen = source_format or format_of(path)
    if chosen == "tfrecord":
        from emberflow import tfrecord

        return tfrecord.read(spark, path, options=parse_pairs(options))
    defaults = {"header": "true", "inferSchema": "true"} if chosen == "csv" else {}
    return spark.read.format(chosen).options(**(defaults | parse_pairs(options))).load(path)


def write_rows(rows: "DataFrame", path: str, chosen: str) -> None:
    """Write rows in a format; replace what exists."""
    if chosen == "tfrecord":
        from emberflow import tfrecord

        tfrecord.write(rows, path, mode="overwrite")
        return
    if chosen == "text":
        rows.write.mode("overwrite").text(path)
        return
    written = {"header": "true"} if chosen == "csv" else {}
    plain(rows, chosen).write.format(chosen).mode("overwrite").options(**written).save(path)


def plain(rows: "DataFrame", chosen: str) -> "DataFrame":
    """Return rows that the format can hold: vectors are arrays in json; both are JSON text in csv."""
    from pyspark.sql import functions as F

    from emberflow._driver.row_routing import quoted

    def column_of(name: str, kind: str) -> Any:
        column = F.col(quoted(name))
        if kind == "vector":
            from pyspark.ml.functions import vector_to_array

            column = vector_to_array(column)
        if chosen == "csv" and kind.startswith(("vector", "array", "struct", "map")):
            column = F.to_json(column)
        return column.alias(name)

    return rows.select(*[column_of(*each) for each in rows.dtypes]) if chosen in ("csv", "json") else rows


def format_of(path: str) -> str:
    """Return the format that a path's ending names.

    >>> format_of("/data/rows.csv"), format_of("hdfs:///rows.parquet")
    ('csv', 'parquet')
    """
    for ending, name in FORMATS.items():
        if path.rstrip("/").removesuffix(".gz").endswith(ending):
            return name
    raise ConfigError(
        f"The path's ending or an option must name the format. Received: path={path!r}.",
        fix="Pass --format parquet (of the output: --output-format), or csv, json, orc, tfrecord.",
    )


def parse_pairs(options: Sequence[str]) -> dict[str, str]:
    """Parse ``name=value``.

    >>> parse_pairs(["header=true"])
    {'header': 'true'}
    """
    pairs = [option.partition("=") for option in options]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise ConfigError(
            f"Options must have the form name=value. Received: {', '.join(wrong)}.",
            fix="Pass --option header=true.",
        )
    return {name: value for name, _, value in pairs}
