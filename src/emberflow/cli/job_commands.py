"""The options of `emberflow train`, `emberflow predict` and `emberflow show`."""

from pathlib import Path
from typing import Annotated, Any

import typer

Format = Annotated[
    str | None, typer.Option("--format", help="Format of the rows, if the path does not tell it.")
]
ReaderOption = Annotated[list[str] | None, typer.Option(help="An option of Spark's reader, name=value.")]
Master = Annotated[
    str | None,
    typer.Option(help="spark://..., local[2], yarn, k8s://... or sc://...; else the environment's Spark."),
]


def train(
    program: Annotated[
        Path, typer.Argument(help="A Python file whose `build_model` returns a compiled model.")
    ],
    rows: Annotated[
        str, typer.Argument(help="The rows: a path or URL of csv, json, parquet, orc or tfrecord.")
    ],
    output: Annotated[str, typer.Argument(help="Where the trained model goes; what is there is replaced.")],
    features: Annotated[
        list[str], typer.Option("--features", "--features-col", help="A column of features; repeat for more.")
    ],
    label: Annotated[
        list[str], typer.Option("--label", "--label-col", help="The column of labels; repeat for more.")
    ],
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the rows.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in one step of one worker.")] = 32,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "--num-workers",
            min=1,
            help="Nodes that train; every slot if left out, but on Connect.",
        ),
    ] = None,
    validation_split: Annotated[float, typer.Option(help="Share of the rows to validate on.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Orders of rows, the split, Dropout and the like.")] = 0,
    checkpoint_dir: Annotated[
        str | None, typer.Option(help="Shared storage, to resume after a loss.")
    ] = None,
    max_restarts: Annotated[int, typer.Option(min=0, help="Restarts after a lost worker.")] = 0,
    param: Annotated[
        list[str] | None,
        typer.Option(help="Any other Param of KerasEstimator by its name: gpusPerWorker=1, optimizer=adam."),
    ] = None,
    source_format: Format = None,
    option: ReaderOption = None,
    master: Master = None,
) -> None:
    """Train a Keras model on files, on Spark.

    The exit code is 0 when the model is saved, 2 for wrong input, and 1 if the training failed.

    For example:

      emberflow train model.py rows.csv model --features length --features width --label kind --master "local[2]"

      emberflow train model.py s3://bucket/rows.parquet s3://bucket/model --features image --label digit --epochs 3
      --workers 4 --param gpusPerWorker=1 --master spark://my-master:7077

      spark-submit --master yarn $(emberflow --submit-file) train model.py hdfs:///rows.parquet hdfs:///model ...
    """
    from emberflow.cli.jobs import run_train

    params = {
        "featuresCols": features,
        "labelCols": label,
        "epochs": epochs,
        "batchSize": batch_size,
        "numWorkers": workers or "auto",
        "validationSplit": validation_split,
        "seed": seed,
        "checkpointDir": checkpoint_dir,
        "maxRestarts": max_restarts,
    }
    code = run_train(
        program=program,
        rows=rows,
        output=output,
        source_format=source_format,
        options=option or [],
        master=master,
        params=params,
        more=param or [],
    )
    raise typer.Exit(code)


def predict(
    rows: Annotated[str, typer.Argument(help="The rows to score: csv, json, parquet, orc or tfrecord.")],
    model: Annotated[
        str, typer.Argument(help="What `emberflow train` wrote, a SavedModel, or a .keras file.")
    ],
    output: Annotated[str, typer.Argument(help="Where the scored rows go; what is there is replaced.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(help="Columns for a model that does not know them, or INPUT=COLUMN; repeat for more."),
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(help="The new column, or OUTPUT=COLUMN; repeat for more.")
    ] = None,
    keep: Annotated[list[str] | None, typer.Option(help="A column to keep; all if left out.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows in one call of the model.")] = None,
    errors: Annotated[
        str | None, typer.Option(help="Rows that do not fit: raise (default), null, or keep (says why).")
    ] = None,
    signature: Annotated[str | None, typer.Option(help="The SavedModel's signature.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs of each task, its own.")] = None,
    source_format: Format = None,
    output_format: Annotated[str | None, typer.Option(help="Likewise of the output.")] = None,
    option: ReaderOption = None,
    master: Master = None,
) -> None:
    """Score files with a model, on Spark: the rows, and beside them what the model says.

    The exit code is 0 when all rows are written, 2 for wrong input, and 1 if the scoring failed.

    For example:

      emberflow predict rows.csv model scored.parquet --master "local[2]"

      emberflow predict rows.parquet saved_model/1 scored.json --inputs pixels --outputs scores --keep id

      spark-submit --master yarn $(emberflow --submit-file) predict hdfs:///rows.parquet hdfs:///model hdfs:///scored.csv
    """
    from emberflow.cli.jobs import columns_asked, run_predict

    scoring: dict[str, Any] = {
        "inputs": columns_asked(inputs) if inputs else None,
        "outputs": columns_asked(outputs) if outputs else None,
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


def show(
    model: Annotated[
        str, typer.Argument(help="A SavedModel, a .keras file, or what `emberflow train` wrote.")
    ],
) -> None:
    """Say what a model takes, what it gives, and who wrote it.

    For example:

      emberflow show /models/mnist

      emberflow show hdfs:///models/mnist.keras
    """
    from emberflow.cli.jobs import run_show

    raise typer.Exit(run_show(model))
