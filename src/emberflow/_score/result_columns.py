"""The columns of the result: their names, their types, and which of the DataFrame's are needed for them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from emberflow._score.input_plan import InputPlan
from emberflow._score.model_facts import ModelFacts
from emberflow._score.output_plan import OutputPlan, check_type, choose_outputs, spark_type
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType


def output_columns(
    model: ModelFacts, outputs: Any, kept: Sequence[str], error_column: str
) -> "tuple[tuple[OutputPlan, ...], list[StructField]]":
    """Return the plans of all outputs, and the fields that come after the kept columns."""
    from pyspark.sql.types import StringType, StructField

    from emberflow.tfrecord.spark_types import arrow_schema

    plans, fields = [], []
    for choice in choose_outputs(model, outputs):
        field = StructField(choice.column, spark_type(model, choice))
        kind = _arrow_type(field, arrow_schema)
        check_type(model, choice, kind)
        plans.append(OutputPlan(name=choice.name, column=choice.column, type=kind))
        fields.append(field)
    if error_column:
        fields.append(StructField(error_column, StringType()))
    _check_new([field.name for field in fields], kept)
    return tuple(plans), fields


def _arrow_type(field: "StructField", arrow_schema: Any) -> Any:
    from pyspark.sql.types import StructType

    return arrow_schema(StructType([field])).field(0).type


def readable_schema(schema: "StructType", kept: Sequence[str]) -> Any:
    """Return the Arrow schema of the columns that Spark can send to Python; the others cannot be kept."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    from emberflow.tfrecord.spark_types import arrow_schema

    fields = []
    for field in schema:
        try:
            fields += list(arrow_schema(StructType([field])))
        except (PySparkException, NotImplementedError) as error:
            if field.name in kept:
                raise ConfigError(
                    f"Kept columns must have types that Spark can send to Python. Received: {field.name!r} of type "
                    f"{field.dataType.simpleString()}.",
                    fix=f"Leave {field.name!r} out of keep=, or cast it to a string in Spark.",
                ) from error
    return pa.schema(fields)


def _check_new(names: Sequence[str], kept: Sequence[str]) -> None:
    taken = {name.lower() for name in kept}
    for name in names:
        if name.lower() in taken:
            raise ConfigError(
                f"New columns must have new names. Received: {name!r}, which exists.",
                fix=f"Choose another name with outputs= (or error_column=), or leave {name!r} out of keep=.",
            )
        taken.add(name.lower())
    if not names:
        raise ConfigError(
            "At least one output is needed. Received: outputs for none.", fix="Leave outputs= out to get all."
        )


def used_columns(columns: Sequence[str], kept: Sequence[str], plans: Sequence[InputPlan]) -> list[str]:
    """Return the columns to send to the tasks: kept columns and input columns."""
    taken = {column.leaf.path[0] for plan in plans for column in plan.columns} | set(kept)
    return [name for name in columns if name in taken]
