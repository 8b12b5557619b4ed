"""Scored rows as lines of text: a template with the names of columns in braces."""

from string import Formatter
from typing import TYPE_CHECKING, Any

from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOW = "now"  # when the scoring began
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"


def lines_of(rows: "DataFrame", template: str) -> "DataFrame":
    """Return one line per row: ``Label: {label}, Prediction: {prediction}`` gives ``Label: 7, Prediction: 7``."""
    from pyspark.sql import functions as F

    kinds = dict(rows.dtypes)
    pieces: list[Any] = []
    for text, name in _parse(template):
        pieces.append(F.lit(text))
        if name == NOW and NOW not in kinds:
            pieces.append(F.date_format(F.current_timestamp(), _TIME))
        elif name is not None:
            pieces.append(_text_of(name, kinds, template))
    return rows.select(F.concat(*pieces).alias("value"))


def _parse(template: str) -> list[tuple[str, str | None]]:
    try:
        parsed = [(text, name) for text, name, _, _ in Formatter().parse(template)]
    except ValueError as error:
        raise _wrong(template, str(error)) from error
    if not any(name for _, name in parsed):
        raise _wrong(template, "no column in braces")
    return parsed


def _text_of(name: str, kinds: dict[str, str], template: str) -> Any:
    """Return a column as text: class numbers without a fraction, arrays and vectors as JSON."""
    from pyspark.sql import functions as F

    from emberflow._driver.row_routing import quoted

    if name not in kinds:
        raise _wrong(template, f"no column {name!r}; there are: {', '.join(kinds)}")
    column, kind = F.col(quoted(name)), kinds[name]
    if kind == "vector":
        from pyspark.ml.functions import vector_to_array

        column = vector_to_array(column)
    if kind.startswith(("vector", "array", "struct", "map")):
        column = F.to_json(column)
    elif kind in ("float", "double"):
        column = F.regexp_replace(column.cast("string"), r"\.0$", "")
    return F.coalesce(column.cast("string"), F.lit("null"))


def _wrong(template: str, why: str) -> ConfigError:
    return ConfigError(
        f"A line must name columns of the scored rows in braces, or {{{NOW}}}. Received: line={template!r}, {why}.",
        fix='Pass --line "{now} Label: {label}, Prediction: {prediction}".',
    )
