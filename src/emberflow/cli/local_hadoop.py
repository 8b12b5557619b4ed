"""`emberflow local-hadoop`: HDFS and YARN on this machine until Ctrl-C."""

import shlex
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from rich.console import Console

from emberflow.errors import EmberflowError
from emberflow.local.hadoop import LocalHadoop, running_hadoop
from emberflow.local.hadoop_jars import HADOOP_VERSION


def run_hadoop(*, yarn: bool, data_nodes: int) -> int:
    """Start Hadoop, print how to use it, wait for Ctrl-C; return the exit code."""
    console = Console(highlight=False, soft_wrap=True)
    signal.signal(signal.SIGTERM, _interrupt)  # `kill` and `docker stop` then clean up as Ctrl-C does
    try:
        with running_hadoop(yarn=yarn, data_nodes=data_nodes) as hadoop:
            _print_usage(console, hadoop, data_nodes)
            threading.Event().wait()
    except KeyboardInterrupt:
        console.print("\nStopped. No process is left.")
    except EmberflowError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"[red]{type(error).__name__}[/red]: {error}"
        )
        return 1
    return 0


def _print_usage(console: Console, hadoop: LocalHadoop, data_nodes: int) -> None:
    servers = f"HDFS with {data_nodes} DataNode{'s' if data_nodes > 1 else ''}"
    servers += ", YARN with one NodeManager" if hadoop.yarn_page else ""
    console.print(f"[bold green]Hadoop {HADOOP_VERSION} is up:[/bold green] {servers}\n")
    console.print(f"  [bold]{hadoop.default_fs}[/bold]  (your folder there: {hadoop.home})\n")
    pages = [page for page in (hadoop.page, hadoop.yarn_page) if page]
    console.print(f"Web pages: {', '.join(pages)}\n", markup=False)
    console.print("Use it from another terminal (copy and paste):\n")
    console.print(f"  {_exports(hadoop)}", markup=False)
    console.print(f"  {_program('spark-class')} org.apache.hadoop.fs.FsShell -ls /", markup=False)
    if hadoop.yarn_page:
        properties = shlex.quote(str(hadoop.properties_file))
        submit = f"{_program('spark-submit')} --properties-file {properties}"
        console.print("\nSubmit a program to YARN; its driver runs here, or in YARN too:\n")
        console.print(f"  {submit} my_program.py", markup=False)
        console.print(f"  {submit} --deploy-mode cluster my_program.py", markup=False)
    console.print(f"\nLogs: {hadoop.log_dir}", markup=False)
    console.print("Ctrl-C stops it and deletes all that is in it.")


def _program(name: str) -> str:
    return shlex.quote(str(Path(sys.executable).with_name(name)))


def _exports(hadoop: LocalHadoop) -> str:
    settings = hadoop.environment() | {"PYSPARK_PYTHON": sys.executable}
    return "export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    raise KeyboardInterrupt
