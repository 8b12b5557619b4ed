"""`emberflow local-cluster`: Spark on this machine until Ctrl-C."""

import shlex
import sys
from pathlib import Path

from rich.console import Console

from emberflow.cli.until_interrupted import export_line, keep_until_interrupted
from emberflow.local.cluster import LOOPBACK, LocalCluster, local_cluster
from emberflow.local.java import find_java_home


def run_cluster(*, workers: int, cores: int, gpus: int, memory: str) -> int:
    """Start the cluster, print how to use it, wait for Ctrl-C; return the exit code."""
    return keep_until_interrupted(
        local_cluster(workers=workers, cores=cores, gpus=gpus, memory=memory), _print_usage
    )


def _print_usage(console: Console, cluster: LocalCluster) -> None:
    gpus = f", {cluster.gpus} simulated GPU each" if cluster.gpus else ""
    console.print(
        f"[bold green]Spark is up:[/bold green] {cluster.workers} Workers with {cluster.cores} "
        f"slot{'s' if cluster.cores > 1 else ''} and {cluster.memory} each{gpus}\n"
    )
    console.print(f"  [bold]{cluster.url}[/bold]\n")
    console.print("Use it from another terminal (copy and paste):\n")
    console.print(f"  {_exports(cluster)}", markup=False)
    console.print(f"  {sys.executable} my_program.py", markup=False)
    console.print("\nwith this in my_program.py:\n")
    console.print(f'  spark = SparkSession.builder.master("{cluster.url}").getOrCreate()', markup=False)
    console.print("\nor with spark-submit:\n")
    console.print(f"  {_submit(cluster)} my_program.py", markup=False)
    console.print(
        f"\nTo join, a program must read {cluster.properties_file}, which holds the secret.", markup=False
    )
    console.print(f"\nLogs: {cluster.log_dir}", markup=False)
    console.print("Ctrl-C stops it.")


def _submit(cluster: LocalCluster) -> str:
    program = Path(sys.executable).with_name("spark-submit")
    return f"{shlex.quote(str(program))} --properties-file {shlex.quote(str(cluster.properties_file))}"


def _exports(cluster: LocalCluster) -> str:
    settings = {
        "JAVA_HOME": find_java_home(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(cluster.properties_file))} pyspark-shell",
    }
    return export_line(settings)
