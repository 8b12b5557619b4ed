"""The Java of all tests: options for JVMs that live for a minute, and Spark's classes in an archive.

Such a JVM spends most of its time on loading 20,000 classes and on compiling them. Where it maps them from an
archive of Java's class data sharing, a session with two executors takes half of the processor time to start.
"""

import fcntl
import os
import shlex
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from emberflow.local.java import find_java_home

ARCHIVES = Path(sys.prefix) / "share" / "emberflow-tests"
ARCHIVE_TIMEOUT = 300.0
# The second compiler pays off in JVMs that live for hours; in ours it took most of their processor time.
OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
PROGRAM = """\
#!/bin/sh
# An archive holds for all class paths that begin with its own, so a folder of settings goes behind Spark's jars.
left=$#
last=
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case "$last $argument" in
    "-cp "*/conf/:*) argument="${{argument#*:}}:${{argument%%:*}}" ;;
  esac
  set -- "$@" "$argument"
  last=$argument
done
# -Xshare:auto loads the classes as usual where the archive is missing, or of another Java or Spark.
exec {java} {options} -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr \\
  -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0 "$@"
"""
SPARK_PROGRAM = """\
from pyspark.sql import SparkSession, functions

session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.range(0, 8, 1, 2).mapInArrow(lambda batches: batches, "id long", barrier=True).write.parquet("rows")
frame = session.read.parquet("rows").withColumn("value", functions.rand(0)).groupBy("id").avg("value")
assert frame.toPandas().shape == (8, 2)
gateway = session.sparkContext._gateway
session.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def make_java_home(folder: Path) -> Path:
    """Make a JAVA_HOME whose `java` is the one of this machine with our options.

    Raises:
        ClusterError: This machine has no suitable Java.
    """
    real = find_java_home()
    (folder / "bin").mkdir(parents=True)
    for path in real.iterdir():
        if path.name != "bin":
            (folder / path.name).symlink_to(path)
    program = folder / "bin" / "java"
    java = shlex.quote(str(real / "bin" / "java"))
    program.write_text(PROGRAM.format(java=java, options=OPTIONS, archive=shlex.quote(str(archive_of(real)))))
    program.chmod(0o755)
    return folder


def archive_of(java_home: Path) -> Path:
    """Return where the archive for this Java and this Spark is, or is to be."""
    # An archive holds for the paths of its jars only: a folder that was moved or copied writes its own.
    name = sha256(f"{java_home.resolve()} {version('pyspark')} {sys.prefix}".encode()).hexdigest()[:16]
    return ARCHIVES / f"spark-{name}.jsa"


def real_java_home() -> Path:
    """Return the folder that the links of the tests' JAVA_HOME lead to."""
    return (Path(os.environ["JAVA_HOME"]) / "lib").resolve().parent


def is_archive_written() -> bool:
    """Tell whether sessions find the archive, or there is no Java to have one."""
    return "JAVA_HOME" not in os.environ or archive_of(real_java_home()).exists()


def ensure_archive() -> None:
    """Write the archive if it is not there yet; processes that come at the same time wait for the first."""
    real = real_java_home()
    archive = archive_of(real)
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    with (ARCHIVES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            write_archive(archive, real)


def write_archive(archive: Path, java_home: Path) -> None:
    """Run a small Spark program, and have Java write an archive of the classes that it loaded."""
    new = archive.with_suffix(".new")
    options = shlex.quote(f"{OPTIONS} -XX:ArchiveClassesAtExit={new} -Xlog:disable")
    env = os.environ | {
        "JAVA_HOME": str(java_home),
        "PYSPARK_SUBMIT_ARGS": f"--driver-java-options {options} pyspark-shell",
    }
    env.pop(
        "SPARK_HOME", None
    )  # the archive names Spark's jars; links to them in a folder for now would not do
    command = [sys.executable, "-c", SPARK_PROGRAM]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, cwd=folder, env=env, timeout=ARCHIVE_TIMEOUT, check=True)
    if new.exists():  # a Java that comes without an archive of its own classes writes none
        new.replace(archive)
