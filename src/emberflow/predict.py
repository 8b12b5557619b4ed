"""`ef.predict`: score a DataFrame with a model, without a cluster of nodes."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from emberflow._names import names_checked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from emberflow._score.input_matching import Inputs

Errors = Literal["raise", "null", "keep"]


@names_checked
def predict(
    df: "DataFrame",
    model: Any,
    *,
    inputs: "Inputs" = None,
    outputs: Any = None,
    batch_size: int | None = None,
    keep: Sequence[str] | None = None,
    errors: Errors = "raise",
    error_column: str = "error",
    signature: str = "serving_default",
    tags: Sequence[str] = ("serve",),
    gpus: int = 0,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    pad_to: Mapping[str, int] | None = None,
    pad_value: Mapping[str, Any] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
) -> "DataFrame":
    """Score a DataFrame with a model: return its columns and the model's outputs as new columns.

    Nothing runs until Spark needs the result; streaming DataFrames are scored batch by batch. Each Python process of
    the executors loads the model once and keeps it for later tasks.

    Args:
        df: The rows, batch or streaming.
        model: A path (local, hdfs://, s3://, ...) of a SavedModel or a ``.keras`` file, or of a folder of numbered
            versions (``models/12``), of which the newest is used: each task of a stream looks for it, so that new
            versions need no restart; or a Keras model, or a function without arguments that loads a model and
            returns a predictor: a function of one array (`inputs` is one column) or of a dictionary of arrays, which
            returns an array or a dictionary of arrays.
        inputs: The column for each input of the model: ``{"image": "pixels"}``, or the column for its only input. A
            list of columns is concatenated. By default columns are found by the inputs' names.
        outputs: The columns for the model's outputs: ``{"output_0": "scores"}``, with a type ``{"output_0":
            ("scores", "array<double>")}``, or the column for its only output. By default "prediction", or the
            outputs' own names if there are several. For a function, the columns with types: "scores array<float>".
        batch_size: Rows in one call of the model. By default as many as fill 4 MB, between 32 and 4096.
        keep: Columns of `df` to keep; all if left out.
        errors: Rows with nulls or the wrong shape: "raise" fails the job, "null" returns null outputs, "keep" also
            adds a column with the reason.
        error_column: The name of that column.
        signature: The SavedModel's signature.
        tags: The SavedModel's tags.
        gpus: GPUs of each task, its own, assigned by Spark's scheduler.
        shapes: The shape of one row, by column, where the model does not fix it.
        dtypes: The dtype of the numbers in binary columns, by column, if not the input's own.
        pad_to: The length to which shorter arrays are padded, by column, as in training. Longer arrays keep their
            length where the model takes any.
        pad_value: What is added to them, by column; 0 or an empty string if left out.
        custom_objects: Custom classes and functions that a ``.keras`` file needs, by name.

    Raises:
        ConfigError: Columns, names or types do not match; nothing was started.
        ModelError: The model cannot be read, or has no such signature; nothing was started.

    Example:
        >>> ef.predict(df, "hdfs:///models/mnist/1", inputs="pixels", outputs="scores")  # doctest: +SKIP
    """
    from pyspark.sql.functions import col

    from emberflow._driver.interpreter import map_in_arrow
    from emberflow._score.model_reading import read_model
    from emberflow._score.model_source import LoadOptions
    from emberflow._score.score_plan import ScoreRequest, check_frame, plan_scoring
    from emberflow._score.score_task import score_task

    request = ScoreRequest(
        inputs=inputs,
        outputs=outputs,
        batch_size=batch_size,
        keep=keep,
        errors=errors,
        error_column=error_column,
        gpus=gpus,
        shapes=shapes or {},
        dtypes=dtypes or {},
        pad_to=pad_to or {},
        pad_value=pad_value or {},
    )
    check_frame(df)
    load_options = LoadOptions(
        signature=signature, tags=tuple(tags), custom_objects=dict(custom_objects or {})
    )
    source, facts = read_model(df.sparkSession, model, load_options, inputs, follows=df.isStreaming)
    plan = plan_scoring(df, source, facts, request)
    task = functools.partial(score_task, plan.spec)
    picked = df.select(*(col(name).alias(alias) for name, alias in plan.columns.items()))
    return map_in_arrow(picked, task, plan.schema, profile=plan.profile)
