"""``cluster.infer`` on the driver: a lazy DataFrame whose tasks ask the nodes."""

import functools
from typing import TYPE_CHECKING, Any

from emberflow._driver.fed_data import FedRdds
from emberflow._driver.feeding_job import FeedingJobs
from emberflow._driver.interpreter import driver_python, made, map_in_arrow
from emberflow._driver.spark_versions import parse_schema
from emberflow._task.inference_task import PROBE_SCHEMA, InferenceTask, infer_rows, probe_columns
from emberflow._task.node_dialing import FeedAccess
from emberflow._task.rdd_task import infer_values
from emberflow.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def inferred_frame(
    frame: "DataFrame", schema: Any, name: str, access: FeedAccess, jobs: FeedingJobs, tag: str
) -> "DataFrame":
    """Return the DataFrame's columns and those of the results.

    Args:
        frame: The rows.
        schema: The columns of the results, as Spark takes it; None asks for the result of the first row.
        name: The requests' name.
        access: The nodes that take them.
        jobs: Runs the job that asks for the first row.
        tag: Its tag.
    """
    task = InferenceTask(access=access, name=name)
    added = _declared(schema) if schema is not None else _found(frame, task, jobs, tag)
    taken = {column.lower() for column in frame.columns}
    repeated = [field.name for field in added if field.name.lower() in taken]
    if repeated or not added.fields:
        raise ConfigError(
            f"The columns of the results must have names that the DataFrame does not have. Received: "
            f"{', '.join(repeated) or 'no columns'}.",
            fix='Reply with a dict, such as request.reply({"score": values}), or rename the DataFrame\'s columns.',
        )
    columns = _arrow_schema(added).serialize().to_pybytes()
    task = InferenceTask(access=access, name=name, columns=columns)
    return map_in_arrow(frame, functools.partial(infer_rows, task), _together(frame.schema, added))


def inferred_rdd(data: FedRdds, name: str, access: FeedAccess, jobs: FeedingJobs, tag: str) -> "RDD[Any]":
    """Return a lazy RDD of the results, one per row, in the order of the rows."""
    ((key, rdd),) = data.rdds.items()
    rows = jobs.run(tag, lambda: data.rows_of(key))
    task = InferenceTask(access=access, name=name)
    with driver_python(data.spark):
        return made(rdd.mapPartitionsWithIndex(functools.partial(infer_values, task, rows)))


def _found(frame: "DataFrame", task: InferenceTask, jobs: FeedingJobs, tag: str) -> "StructType":
    """Return the columns of the first row's result."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    rows = jobs.run(
        tag,
        lambda: map_in_arrow(frame.limit(1), functools.partial(probe_columns, task), PROBE_SCHEMA).collect(),
    )
    if not rows:
        raise DataError(
            "The columns of the results are found by the result of the first row. Received: no rows.",
            fix='Pass schema="prediction float" to cluster.infer, or check the DataFrame\'s filters.',
        )
    return from_arrow_schema(pa.ipc.read_schema(pa.py_buffer(bytes(rows[0]["columns"]))))


def _declared(schema: Any) -> "StructType":
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return schema
    try:
        found = parse_schema(schema)
    except Exception as error:
        raise ConfigError(
            f"`schema` must name the columns of the replies, and their types. Received: schema={schema!r}, which "
            f"Spark refuses: {str(error).strip().splitlines()[0]}",
            fix='Pass schema="prediction double, label long", or leave it out.',
        ) from error
    return found if isinstance(found, StructType) else StructType().add("prediction", found)


def _together(one: "StructType", other: "StructType") -> "StructType":
    from pyspark.sql.types import StructType

    return StructType([*one.fields, *other.fields])


def _arrow_schema(schema: "StructType") -> Any:
    import inspect

    from pyspark.sql.pandas.types import to_arrow_schema

    has_zone = (
        "timezone" in inspect.signature(to_arrow_schema).parameters
    )  # since 4.2; UTC was the default before
    return to_arrow_schema(schema, timezone="UTC") if has_zone else to_arrow_schema(schema)
