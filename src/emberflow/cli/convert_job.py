"""`emberflow convert --partitions`: the conversion by Spark, one file per partition."""

from typing import TYPE_CHECKING, Any

from rich.console import Console

from emberflow.cli.spark_files import parse_pairs, plain, read_rows, session
from emberflow.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LINE = "value"  # Spark's own name for the lines of text files
WRITTEN = ("csv", "json", "parquet", "tfrecord")


def convert_by_spark(
    console: Console,
    source: str,
    target: str,
    *,
    kind: str,
    to: str,
    labels: str | None,
    options: list[str],
    partitions: int,
    master: str | None,
) -> None:
    """Convert files, with as many files as result as there are partitions."""
    if to not in WRITTEN:
        raise ConfigError(
            f"{to} is read, not written. Received: OUT={target!r}.",
            fix=f"Pass --to with one of {', '.join(WRITTEN)}.",
        )
    with session(master, "emberflow convert") as spark:
        if kind == "idx":
            from emberflow.tfrecord.idx_frame import idx_frame

            rows, written = idx_frame(spark, source, labels), parse_pairs(options)
        else:
            rows, written = read_rows(spark, source, kind, options), {}
        rows = rows.repartition(partitions)
        _write(_lines(rows) if kind == "idx" and to == "csv" else rows, target, to, written)
    files = "1 file" if partitions == 1 else f"{partitions} files"
    console.print(f"The rows are in {target}: {to}, {files}.", markup=False)


def _write(rows: "DataFrame", target: str, to: str, options: dict[str, str]) -> None:
    """Write rows to a path where nothing is."""
    from pyspark.errors import AnalysisException

    try:
        if to == "tfrecord":
            from emberflow import tfrecord

            tfrecord.write(rows, target, options=options)
        elif rows.columns == [LINE]:
            rows.write.options(**options).text(target)
        else:
            header = {"header": "true"} if to == "csv" else {}
            plain(rows, to).write.format(to).options(**(header | options)).save(target)
    except AnalysisException as error:
        if "PATH_ALREADY_EXISTS" not in str(error):
            raise
        raise StorageError(
            f"Expected nothing at the target. Received: OUT={target!r}, which exists.",
            fix="Choose another name, or delete it first.",
        ) from error


def _lines(rows: "DataFrame") -> "DataFrame":
    """Return images as lines ``label,pixel,pixel,...``."""
    from pyspark.sql import functions as F

    def texts(name: str, kind: str) -> Any:
        return F.col(name).cast("array<string>" if kind.startswith("array") else "string")

    return rows.select(F.concat_ws(",", *(texts(*each) for each in rows.dtypes)).alias(LINE))
