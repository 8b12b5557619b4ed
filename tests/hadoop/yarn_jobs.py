"""Programs on YARN as a person submits them: spark-submit, with the Python environment sent along."""

import io
import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

from emberflow.local.hadoop import LocalHadoop

SMALL = {
    "spark.driver.memory": "512m",
    "spark.yarn.am.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "1",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.pyspark.python": "./environment/bin/python",
}


def pack_environment(path: Path) -> Path:
    """Write what venv-pack writes, thin: an environment that is one line which leads to this one's packages."""
    library = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    leads_here = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    with tarfile.open(path, "w:gz") as archive:
        program = tarfile.TarInfo("bin/python")
        program.type, program.linkname = tarfile.SYMTYPE, os.path.realpath(sys.executable)
        archive.addfile(program)
        home = f"home = {Path(os.path.realpath(sys.executable)).parent}\n"
        for name, text in (("pyvenv.cfg", home), (f"{library}/here.pth", leads_here)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def submit(
    hadoop: LocalHadoop,
    program: Path,
    *arguments: str,
    mode: str,
    archive: Path,
    conf: dict[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run spark-submit to its end."""
    return subprocess.run(
        [*command(hadoop, mode, archive, conf or {}), str(program), *arguments],
        capture_output=True,
        text=True,
        env=environment(hadoop, mode),
        timeout=400,
    )


def command(hadoop: LocalHadoop, mode: str, archive: Path, conf: dict[str, str]) -> list[str]:
    settings = [word for pair in (SMALL | conf).items() for word in ("--conf", "=".join(pair))]
    return [
        *(f"{os.environ['SPARK_HOME']}/bin/spark-submit", "--properties-file", str(hadoop.properties_file)),
        *("--deploy-mode", mode, "--archives", f"{archive}#environment", *settings),
    ]


def environment(hadoop: LocalHadoop, mode: str) -> dict[str, str]:
    """Return what a person exports; in client mode the driver has a Python of its own."""
    env = os.environ | hadoop.environment()
    del env["PYSPARK_PYTHON"]
    if mode == "cluster":
        del env["PYSPARK_DRIVER_PYTHON"]
    return env


def application_of(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the id that spark-submit says."""
    return next(word for word in done.stderr.split() if word.startswith("application_"))
