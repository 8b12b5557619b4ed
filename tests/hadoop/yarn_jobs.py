"""Programs on YARN as a person submits them: spark-submit, with the Python environment sent along."""

import io
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

from emberflow.local.hadoop import LocalHadoop

SMALL = {
    "spark.driver.memory": "512m",
    "spark.yarn.am.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverhead": "1g",
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
        env=environment(hadoop),
        timeout=400,
    )


def command(hadoop: LocalHadoop, mode: str, archive: Path, conf: dict[str, str]) -> list[str]:
    if mode == "client":  # the driver is not in a container, where the archive is
        conf = conf | {"spark.pyspark.driver.python": sys.executable}
    settings = [word for pair in (SMALL | conf).items() for word in ("--conf", "=".join(pair))]
    return [
        *(f"{os.environ['SPARK_HOME']}/bin/spark-submit", "--properties-file", str(hadoop.properties_file)),
        *("--deploy-mode", mode, "--archives", f"{archive}#environment", *settings),
    ]


def environment(hadoop: LocalHadoop) -> dict[str, str]:
    """Return what a person exports."""
    env = os.environ | hadoop.environment()
    return {name: value for name, value in env.items() if not name.startswith("PYSPARK_")}


def report_of(hadoop: LocalHadoop, application: str) -> dict[str, Any]:
    """Return what the ResourceManager knows of an application."""
    url = f"{hadoop.yarn_page}/ws/v1/cluster/apps/{application}"
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with urllib.request.urlopen(request) as answer:
        report: dict[str, Any] = json.load(answer)["app"]
    return report
