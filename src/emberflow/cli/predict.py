"""`emberflow predict`: files through a model, on Spark."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from emberflow.cli.exit_codes import exit_code_of
from emberflow.cli.show import METADATA
from emberflow.cli.spark_files import (
    FormatOption,
    MasterOption,
    ReaderOption,
    format_of,
    parse_pairs,
    read_rows,
    session,
    write_rows,
)
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def predict(
    rows: Annotated[
        str, typer.Argument(help="The rows to score: a path or URL of csv, json, parquet, orc or tfrecord.")
    ],
    model: Annotated[
        str, typer.Argument(help="A model that `emberflow train` saved, a SavedModel, or a .keras file.")
    ],
    output: Annotated[str, typer.Argument(help="Path for the scored rows; an existing one is replaced.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            help="Input column, or INPUT=COLUMN; repeat for more. Not for a model of `emberflow train`."
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(help="The new column, or OUTPUT=COLUMN; repeat for more.")
    ] = None,
    keep: Annotated[list[str] | None, typer.Option(help="A column to keep; all if left out.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows in one call of the model.")] = None,
    errors: Annotated[
        str | None, typer.Option(help="Invalid rows: raise (default), null, or keep (with the reason).")
    ] = None,
    signature: Annotated[str | None, typer.Option(help="The SavedModel's signature.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs of each task, its own.")] = None,
    source_format: FormatOption = None,
    output_format: Annotated[
        str | None, typer.Option(help="Format of the output, if the name of its path does not say it.")
    ] = None,
    option: ReaderOption = None,
    master: MasterOption = None,
) -> None:
    """Score files with a model, on Spark: the rows, with the model's outputs as new columns.

    The exit code is 0 when all rows are written, 2 for wrong input, and 1 if the scoring failed.

    For example:

      emberflow predict rows.csv model scored.parquet --master "local[2]"

      emberflow predict rows.parquet saved_model/1 scored.json --inputs pixels --outputs scores --keep id

      spark-submit --master yarn $(emberflow --submit-file) predict hdfs:///rows.parquet hdfs:///model hdfs:///scored.csv
    """
    scoring: dict[str, Any] = {
        "inputs": parse_columns(inputs) if inputs else None,
        "outputs": parse_columns(outputs) if outputs else None,
        "keep": keep or None,
        "batch_size": batch_size,
        "errors": errors,
        "signature": signature,
        "gpus": gpus,
    }
    code = run_predict(
        rows=rows,
        model=model,
        output=output,
        source_format=source_format,
        options=option or [],
        output_format=output_format,
        master=master,
        scoring={name: value for name, value in scoring.items() if value is not None},
    )
    raise typer.Exit(code)


def run_predict(
    *,
    rows: str,
    model: str,
    output: str,
    source_format: str | None,
    options: Sequence[str],
    output_format: str | None,
    master: str | None,
    scoring: dict[str, Any],
) -> int:
    """Score and write; return the exit code."""

    def score(console: Console) -> None:
        chosen = output_format or format_of(output)
        with session(master, "emberflow predict") as spark:
            frame = read_rows(spark, rows, source_format, options)
            write_rows(scored_by(model, frame, scoring), output, chosen)
        console.print(f"The scored rows are in {output}.")

    return exit_code_of(score)


def scored_by(model: str, frame: "DataFrame", scoring: dict[str, Any]) -> "DataFrame":
    """Return the rows with the outputs of a saved KerasModel, or of any other model."""
    from emberflow import storage

    if not storage.exists(storage.join(storage.folder_root(model), METADATA)):
        from emberflow.predict import predict

        return predict(frame, model, **scoring)
    from emberflow.ml import KerasModel

    known = ("batch_size",)
    unused = sorted(name for name in scoring if name not in known)
    if unused:
        raise ConfigError(
            f"{model} was saved by `emberflow train` and has its own columns. Received: {', '.join(unused)}.",
            fix=f"Leave them out, or score with {storage.join(model, 'saved_model')}.",
        )
    saved = KerasModel.load(model)
    if "batch_size" in scoring:
        saved._set(batchSize=scoring["batch_size"])  # noqa: SLF001 - Spark ML's own setter
    return saved.transform(frame)


def parse_columns(given: Sequence[str]) -> Any:
    """Return columns as `ef.predict` accepts them: one, several, or by the names of inputs or outputs.

    >>> parse_columns(["pixels"]), parse_columns(["a", "b"]), parse_columns(["image=pixels"])
    ('pixels', ['a', 'b'], {'image': 'pixels'})
    """
    if any("=" in each for each in given):
        return parse_pairs(given)
    return given[0] if len(given) == 1 else list(given)
