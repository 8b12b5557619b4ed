"""Columns of csv files that have no header: named and typed by the user, several fields as one array."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMN = re.compile(r"(\w+)\s+([a-z]+)\s*(?:\[\s*(\d+)\s*\])?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class CsvColumn:
    """A column: its name, Spark's name of its type, and the fields of an array; None for a single value."""

    name: str
    type: str
    fields: int | None = None


def parse_columns(text: str) -> tuple[CsvColumn, ...]:
    """Parse names and types.

    >>> parse_columns("label long, image float[784]")[1]
    CsvColumn(name='image', type='float', fields=784)
    """
    found = [_COLUMN.fullmatch(part.strip()) for part in text.split(",")]
    columns = [
        CsvColumn(name=match[1], type=match[2].lower(), fields=int(match[3]) if match[3] else None)
        for match in found
        if match is not None
    ]
    if len(columns) < len(found) or any(each.fields == 0 for each in columns):
        raise ConfigError(
            f"Columns must be names with Spark's types, comma separated. Received: columns={text!r}.",
            fix='Pass --columns "label long, image float[784]": image takes the 784 fields after label.',
        )
    return tuple(columns)


def read_lines(spark: "SparkSession", path: str, text: str, separator: str = ",") -> "DataFrame":
    """Read lines of values by the columns in `text`; a line with another number of values is an error that shows it.

    Spark's csv reader has one column per field, which takes minutes to plan for images.
    """
    from pyspark.sql import functions as F

    columns = parse_columns(text)
    wanted = sum(each.fields or 1 for each in columns)
    parts = F.split("value", re.escape(separator))
    problem = F.concat(
        F.lit(f"Expected {wanted} values in each line of {path}. Received: "),
        F.size(parts).cast("string"),
        F.lit(" values in the line "),
        F.substring("value", 1, 40),
    )
    checked = F.when(F.size(parts) == wanted, parts).otherwise(F.raise_error(problem))
    values, at = [], 1
    for each in columns:
        field = F.slice("parts", at, each.fields) if each.fields else F.element_at("parts", at)
        kind = f"array<{each.type}>" if each.fields else each.type
        values.append(field.cast(kind).alias(each.name))
        at += each.fields or 1
    return spark.read.text(path).select(checked.alias("parts")).select(*values)
