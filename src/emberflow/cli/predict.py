"""`emberflow predict`: files through a model, on Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from emberflow.cli.exit_codes import exit_code_of
from emberflow.cli.file_rows import FILES, SPARK, check_input_mode, rows_from_files, source_of
from emberflow.cli.show import METADATA
from emberflow.cli.spark_files import (
    ColumnsOption,
    FormatOption,
    InputModeOption,
    MasterOption,
    ReaderOption,
    format_of,
    parse_pairs,
    read_rows,
    session,
    write_rows,
)
from emberflow.cli.text_lines import lines_of
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    line: Annotated[
        str | None,
        typer.Option(
            help="Write text, one line per row: columns in braces, and {now}, when the scoring began."
        ),
    ] = None,
    option: ReaderOption = None,
    columns: ColumnsOption = None,
    input_mode: InputModeOption = SPARK,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Tasks that share the files, with --input-mode files.")
    ] = None,
    master: MasterOption = None,
) -> None:
    """Score files with a model, on Spark: the rows, with the model's outputs as new columns.

    The exit code is 0 when all rows are written, 2 for wrong input, and 1 if the scoring failed.

    For example:

      emberflow predict rows.csv model scored.parquet --master "local[2]"

      emberflow predict rows.parquet saved_model/1 scored.json --inputs pixels --outputs scores --keep id

      emberflow predict mnist/test model lines --format tfrecord --input-mode files --line "{label} {prediction}"

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
        rows=Rows(
            path=rows,
            source_format=source_format,
            options=tuple(option or ()),
            columns=columns,
            input_mode=input_mode,
            tasks=tasks,
        ),
        model=model,
        output=output,
        output_format=output_format,
        line=line,
        master=master,
        scoring={name: value for name, value in scoring.items() if value is not None},
    )
    raise typer.Exit(code)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows to score, and how they are read."""

    path: str
    source_format: str | None = None
    options: Sequence[str] = ()
    columns: str | None = None
    input_mode: str = SPARK
    tasks: int | None = None

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """Return the rows, read by Spark or by the tasks themselves."""
        if self.input_mode == FILES:
            return rows_from_files(spark, source_of(self.path, self.source_format), self.tasks)
        return read_rows(spark, self.path, self.source_format, self.options, self.columns)


def run_predict(
    *,
    rows: Rows,
    model: str,
    output: str,
    output_format: str | None,
    line: str | None,
    master: str | None,
    scoring: dict[str, Any],
) -> int:
    """Score and write; return the exit code."""

    def score(console: Console) -> None:
        check_input_mode(rows.input_mode)
        chosen = "text" if line is not None else output_format or format_of(output)
        with session(master, "emberflow predict") as spark:
            scored = scored_by(model, rows.frame(spark), scoring)
            write_rows(scored if line is None else lines_of(scored, line), output, chosen)
        console.print(f"The scored rows are in {output}.")

    return exit_code_of(score)


def scored_by(model: str, frame: "DataFrame", scoring: dict[str, Any]) -> "DataFrame":
    """Return the rows with the outputs of a saved KerasModel, or of any other model."""
    from emberflow import storage
    from emberflow._driver.paths import resolve_path

    model = resolve_path(frame.sparkSession, model)
    if not storage.exists(storage.join(model, METADATA)):
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
