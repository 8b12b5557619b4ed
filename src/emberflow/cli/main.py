"""The commands and their options. What they do is in the other files, imported when asked for."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="emberflow",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    help="TensorFlow and Keras on Apache Spark.",
    epilog="Start with [bold]emberflow demo[/bold]. If something does not work: [bold]emberflow doctor[/bold].",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from emberflow import __version__

        typer.echo(f"emberflow {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop."),
    ] = False,
) -> None:
    """Hold the options that stand before any command."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the picture; it is made if need be.")] = Path(
        "demo-output"
    ),
    workers: Annotated[int, typer.Option(min=1, max=8, help="How many nodes train together.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the 1,347 training digits.")] = 12,
) -> None:
    """Train a small network on a Spark of your own and draw what it learned. Takes about a minute.

    Starts a real Spark on this machine (a Master and one Worker process for each node, on loopback only), trains a
    network to read handwritten digits on it, and stops it again. Nothing is downloaded.

    For example:

      emberflow demo

      emberflow demo --workers 1 --epochs 4 --output /tmp/digits
    """
    from emberflow.cli.demo import run_demo

    raise typer.Exit(run_demo(output=output, workers=workers, epochs=epochs))


@app.command()
def doctor(
    master: Annotated[
        str | None,
        typer.Option(
            help="Also ask the executors of this Spark: spark://..., local[2], yarn, k8s://... or sc://..."
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for the executors.")] = 120.0,
) -> None:
    """Check this machine, and a cluster if you name one; say what to change.

    One line for each thing checked. The exit code is 1 if something would fail.

    For example:

      emberflow doctor

      emberflow doctor --master spark://my-master:7077

      emberflow doctor --master "local-cluster[2,1,1024]"
    """
    from emberflow.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(master, timeout))


@app.command("local-cluster")
def local_cluster(
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, one executor each.")] = 2,
    cores: Annotated[int, typer.Option(min=1, help="Task slots of each Worker.")] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs that each Worker pretends to have.")] = 0,
    memory: Annotated[str, typer.Option(help="Memory that each Worker may give, such as 1g or 512m.")] = "1g",
) -> None:
    """Run a real Spark on this machine until you press Ctrl-C.

    A Master and Workers on loopback, on free ports. Leaves nothing behind.

    For example:

      emberflow local-cluster

      emberflow local-cluster --workers 2 --cores 2 --gpus 1
    """
    from emberflow.cli.cluster import run_cluster

    raise typer.Exit(run_cluster(workers=workers, cores=cores, gpus=gpus, memory=memory))


@app.command()
def train(
    program: Annotated[
        Path, typer.Argument(help="A Python file whose `build_model` returns a compiled model.")
    ],
    rows: Annotated[
        str, typer.Argument(help="The rows: a path or URL of csv, json, parquet, orc or tfrecord.")
    ],
    output: Annotated[str, typer.Argument(help="Where the trained model goes; what is there is replaced.")],
    features: Annotated[list[str], typer.Option(help="A column of features; several for several.")],
    label: Annotated[list[str], typer.Option(help="The column of labels.")],
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the rows.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in one step of one worker.")] = 32,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Nodes that train; every slot if left out.")
    ] = None,
    validation_split: Annotated[float, typer.Option(help="Share of the rows to validate on.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Orders of rows, the split, Dropout and the like.")] = 0,
    checkpoint_dir: Annotated[
        str | None, typer.Option(help="Shared storage, to resume after a loss.")
    ] = None,
    max_restarts: Annotated[int, typer.Option(min=0, help="Restarts after a lost worker.")] = 0,
    source_format: Annotated[
        str | None, typer.Option("--format", help="If the path does not tell it.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of Spark's reader, name=value.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; else that of the environment.")] = None,
) -> None:
    """Train a Keras model on files, on Spark.

    The exit code is 2 for wrong input and 1 if the training failed.

    For example:

      emberflow train model.py rows.csv model --features length --features width --label kind --master "local[2]"

      spark-submit --master yarn -m emberflow.cli.main train model.py hdfs:///rows.parquet hdfs:///model ...
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
    )
    raise typer.Exit(code)


@app.command()
def predict(
    rows: Annotated[str, typer.Argument(help="The rows to score.")],
    model: Annotated[
        str, typer.Argument(help="What `emberflow train` wrote, a SavedModel, or a .keras file.")
    ],
    output: Annotated[str, typer.Argument(help="Where the scored rows go; what is there is replaced.")],
    inputs: Annotated[
        list[str] | None, typer.Option(help="Columns for a model that does not know them.")
    ] = None,
    source_format: Annotated[
        str | None, typer.Option("--format", help="If the path does not tell it.")
    ] = None,
    output_format: Annotated[str | None, typer.Option(help="Likewise of the output.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of Spark's reader, name=value.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; else that of the environment.")] = None,
) -> None:
    """Score files with a model, on Spark: the rows, and beside them what the model says.

    For example:

      emberflow predict rows.csv model scored.parquet --master "local[2]"
    """
    from emberflow.cli.jobs import run_predict

    code = run_predict(
        rows=rows,
        model=model,
        output=output,
        source_format=source_format,
        options=option or [],
        output_format=output_format,
        columns=inputs or [],
        master=master,
    )
    raise typer.Exit(code)


@app.command()
def show(
    model: Annotated[str, typer.Argument(help="A SavedModel, a .keras file, or a saved KerasModel.")],
) -> None:
    """Say what a model takes, what it gives, and who wrote it.

    For example:

      emberflow show /models/mnist
    """
    from emberflow.cli.jobs import run_show

    raise typer.Exit(run_show(model))


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="csv, parquet, json, tfrecord, or idx (MNIST) images.")],
    target: Annotated[str, typer.Argument(help="csv, parquet, json or tfrecord.")],
    kind: Annotated[
        str | None, typer.Option("--from", help="The source's format, if not told by its name.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="The target's format, if its name does not tell it.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="The idx file of labels that belongs to idx images.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the format, name=value.")] = None,
) -> None:
    """Convert files between csv, parquet, json and tfrecord, and from idx.

    For example:

      emberflow convert rows.csv rows.tfrecord

      emberflow convert train-images-idx3-ubyte.gz mnist.tfrecord --labels train-labels-idx1-ubyte.gz
    """
    from emberflow.cli.convert import run_convert

    raise typer.Exit(run_convert(source, target, kind=kind, to=to, labels=labels, options=option))


if __name__ == "__main__":
    app(prog_name="emberflow")
