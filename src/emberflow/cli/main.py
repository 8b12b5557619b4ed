"""The commands and their options. Their code is in the other files, imported when a command runs."""

from pathlib import Path
from typing import Annotated

import typer

from emberflow._plan import deadlines
from emberflow.cli.predict import predict
from emberflow.cli.render import render
from emberflow.cli.runs import runs
from emberflow.cli.show import show
from emberflow.cli.spark_files import MasterOption
from emberflow.cli.train import train
from emberflow.cli.ui import ui

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


def _show_submit_file(wanted: bool) -> None:
    if wanted:
        typer.echo(Path(__file__).with_name("submit.py"))
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    submit_file: Annotated[
        bool,
        typer.Option(
            "--submit-file",
            callback=_show_submit_file,
            is_eager=True,
            help="Show the file to use in [bold]spark-submit FILE train ...[/bold], and exit.",
        ),
    ] = False,
) -> None:
    """Declare the options before any command."""


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option(help="Folder for the picture and the model; created if missing.")
    ] = Path("demo-output"),
    workers: Annotated[int, typer.Option(min=1, max=8, help="How many nodes train together.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the 1,347 training digits.")] = 12,
) -> None:
    """Train a small network on Spark on this machine and draw the result. Takes about a minute.

    Starts a real Spark (a Master and one Worker process for each node, on loopback only), trains a network to read
    handwritten digits on it, and stops it again. Nothing is downloaded.

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
            help="Check the executors of this Spark too: spark://..., local[2], yarn, k8s://... or sc://..."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds to wait for the executors.")
    ] = deadlines.DOCTOR_TIMEOUT,
) -> None:
    """Check this machine, and a cluster if you name one; print what to fix.

    Prints one line per check. The exit code is 1 if something would fail.

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
    gpus: Annotated[int, typer.Option(min=0, help="GPUs that each Worker simulates.")] = 0,
    memory: Annotated[str, typer.Option(help="Memory of each Worker, such as 1g or 512m.")] = "1g",
) -> None:
    """Run a real Spark on this machine until you press Ctrl-C.

    A Master and Workers on free loopback ports. No process and no file is left afterwards.

    For example:

      emberflow local-cluster

      emberflow local-cluster --workers 2 --cores 2 --gpus 1
    """
    from emberflow.cli.local_cluster import run_cluster

    raise typer.Exit(run_cluster(workers=workers, cores=cores, gpus=gpus, memory=memory))


@app.command("local-hadoop")
def local_hadoop(
    yarn: Annotated[bool, typer.Option(help="Start YARN too, to submit programs to.")] = True,
    data_nodes: Annotated[int, typer.Option(min=1, help="DataNode processes of HDFS.")] = 1,
) -> None:
    """Run a real Hadoop on this machine, HDFS and YARN, until you press Ctrl-C.

    NameNode, DataNodes, ResourceManager and NodeManager on free loopback ports. Maven brings their jars the first
    time. No process and no file is left afterwards, the files on this HDFS included.

    For example:

      emberflow local-hadoop

      emberflow local-hadoop --no-yarn --data-nodes 2
    """
    from emberflow.cli.local_hadoop import run_hadoop

    raise typer.Exit(run_hadoop(yarn=yarn, data_nodes=data_nodes))


for command in (train, predict, show, render, runs, ui):
    app.command()(command)


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="csv, parquet, json, tfrecord, or idx (MNIST) images.")],
    target: Annotated[str, typer.Argument(help="csv, parquet, json or tfrecord.")],
    kind: Annotated[
        str | None, typer.Option("--from", help="The source's format, if its name does not say it.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="The target's format, if its name does not say it.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="The idx file of labels that belongs to idx images.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the format, name=value.")] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Convert by Spark, into a folder of so many files, on any storage."),
    ] = None,
    master: MasterOption = None,
) -> None:
    """Convert files between csv, parquet, json and tfrecord, and from idx.

    Without --partitions this machine writes one file, and Spark is not needed. With --partitions Spark's tasks
    write a folder of files. Images of idx files become lines `label,pixel,pixel,...` in csv, without a header.

    For example:

      emberflow convert rows.csv rows.tfrecord

      emberflow convert train-images-idx3-ubyte.gz mnist.tfrecord --labels train-labels-idx1-ubyte.gz

      emberflow convert file:/data/train-images-idx3-ubyte.gz hdfs:///mnist/csv --to csv --partitions 10 --master yarn
    """
    from emberflow.cli.convert import run_convert

    code = run_convert(
        source,
        target,
        kind=kind,
        to=to,
        labels=labels,
        options=option,
        partitions=partitions,
        master=master,
    )
    raise typer.Exit(code)


if __name__ == "__main__":
    app(prog_name="emberflow")
