"""The rows that an estimator trains on, and those that it holds out to validate on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emberflow._driver.row_routing import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from emberflow.ml.params import ValidationParams


def split_rows(
    stage: "ValidationParams", dataset: "DataFrame", columns: Sequence[str]
) -> "dict[str, DataFrame]":
    """Return these columns of the rows to train on, and of those to validate on if there are any, by name."""
    from pyspark.sql import functions as F

    needed = [F.col(quoted(name)) for name in dict.fromkeys(columns)]
    if stage.isDefined("validationIndicatorCol"):
        indicator = F.col(quoted(stage.getOrDefault("validationIndicatorCol")))
        held_out = F.coalesce(indicator, F.lit(False))  # a row without an indicator is trained on
        return {
            "train": dataset.filter(~held_out).select(*needed),
            "validation": dataset.filter(held_out).select(*needed),
        }
    share = stage.getOrDefault("validationSplit")
    rows = dataset.select(*needed)
    if not share:
        return {"train": rows}
    first, second = rows.randomSplit([1.0 - share, share], seed=stage.getOrDefault("seed"))
    return {"train": first, "validation": second}
