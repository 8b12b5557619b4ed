"""`emberflow local-hadoop`: HDFS and YARN on this machine until Ctrl-C."""

import functools
import shlex
import sys
from pathlib import Path

from rich.console import Console

from emberflow.cli.until_interrupted import export_line, keep_until_interrupted
from emberflow.local.hadoop import LocalHadoop, running_hadoop
from emberflow.local.hadoop_jars import HADOOP_VERSION


def run_hadoop(*, yarn: bool, data_nodes: int) -> int:
    """Start Hadoop, print how to use it, wait for Ctrl-C; return the exit code."""
    servers = running_hadoop(yarn=yarn, data_nodes=data_nodes)
    return keep_until_interrupted(servers, functools.partial(_print_usage, data_nodes=data_nodes))


def _print_usage(console: Console, hadoop: LocalHadoop, *, data_nodes: int) -> None:
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
        console.print("\nCheck what its executors have and lack:\n")
        console.print(f"  {_program('emberflow')} doctor --master yarn", markup=False)
    console.print(f"\nLogs: {hadoop.log_dir}", markup=False)
    console.print("Ctrl-C stops it and deletes all that is in it.")


def _program(name: str) -> str:
    return shlex.quote(str(Path(sys.executable).with_name(name)))


def _exports(hadoop: LocalHadoop) -> str:
    settings = hadoop.environment() | {"PYSPARK_PYTHON": sys.executable}
    if hadoop.yarn_page:  # for programs that python or emberflow starts, not spark-submit
        file = shlex.quote(str(hadoop.properties_file))
        settings["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {file} pyspark-shell"
    return export_line(settings)
