"""The jars of Hadoop's servers: Maven brings them once, and a folder of links to them stays for the next time."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from emberflow._plan import deadlines
from emberflow.errors import ClusterError
from emberflow.local.daemons import own_environment
from emberflow.local.java import find_java_home

HADOOP_VERSION = "3.5.0"  # the one whose client Spark 4.2 and newer bundle

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"  # the one that Maven 3 uses by itself
_ARTIFACTS = (
    "hadoop-common",
    "hadoop-hdfs",
    "hadoop-hdfs-client",
    "hadoop-hdfs:tests",  # has the web pages of the NameNode and the DataNodes, without which they do not start
    "hadoop-yarn-client",
    "hadoop-yarn-server-nodemanager",
    "hadoop-yarn-server-resourcemanager",
    "hadoop-yarn-server-timelineservice",  # the ResourceManager's web pages need its classes
)
_TAIL_LINES = 15  # of what Maven said: the cause comes last


def hadoop_jars() -> Path:
    """Return the folder of all jars that Hadoop's servers and its shell need; Maven brings them the first time.

    Raises:
        ClusterError: Maven is not installed, or could not bring the jars.
    """
    project = _project()
    folder = _cache() / f"hadoop-{HADOOP_VERSION}-{sha256(project.encode()).hexdigest()[:8]}"
    if _is_complete(folder):
        return folder
    with _only_one():  # Maven's own folder is not made for two Mavens that write to it
        if not _is_complete(folder):
            _publish(_resolve(project), folder)
    return folder


def _cache() -> Path:
    return Path.home() / ".cache" / "emberflow"


@contextmanager
def _only_one() -> Iterator[None]:
    _cache().mkdir(parents=True, exist_ok=True)
    with (_cache() / "hadoop.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_complete(folder: Path) -> bool:
    """Say whether the links are there, and what they lead to: somebody may have emptied Maven's folder."""
    return folder.is_dir() and all(link.exists() for link in folder.iterdir())


def _resolve(project: str) -> list[Path]:
    """Have Maven bring the artifacts and all that they need; return the jars in its local repository."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ClusterError(
            f"Maven brings the servers of Hadoop {HADOOP_VERSION}, and there is no `mvn` on the PATH.",
            fix="Install Maven 3 (Debian, Ubuntu: apt install maven), then try again.",
        )
    with tempfile.TemporaryDirectory(prefix="emberflow-maven-") as name:
        folder = Path(name)
        (folder / "pom.xml").write_text(project)
        listed = folder / "class-path"
        command = [maven, "-B", "-q", f"{_PLUGIN}:build-classpath", f"-Dmdep.outputFile={listed}"]
        _run(command, folder)
        return [Path(line) for line in listed.read_text().strip().split(os.pathsep)]


def _run(command: list[str], folder: Path) -> None:
    env = own_environment() | {"JAVA_HOME": str(find_java_home())}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=deadlines.MAVEN_TIMEOUT,
            check=False,
        )
        failure = f"exited with code {done.returncode}" if done.returncode else ""
        said = done.stdout
    except subprocess.TimeoutExpired as expired:
        failure = f"took more than {deadlines.MAVEN_TIMEOUT:.0f} s"
        said = expired.stdout.decode(errors="replace") if isinstance(expired.stdout, bytes) else ""
    if failure:
        tail = "\n".join(said.splitlines()[-_TAIL_LINES:])
        raise ClusterError(
            f"Maven could not bring the servers of Hadoop {HADOOP_VERSION}: it {failure}.\n{tail}",
            fix="Let Maven reach its repository (a mirror or a proxy stands in ~/.m2/settings.xml); "
            "it is needed once, the jars stay in ~/.m2.",
        )


def _publish(jars: list[Path], folder: Path) -> None:
    """Make the folder of links, complete or not at all."""
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    for jar in jars:
        (new / jar.name).symlink_to(jar)
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


def _project() -> str:
    """Return the pom.xml of a project that needs what Hadoop's servers need."""
    dependencies = "\n".join(_dependency(*artifact.split(":")) for artifact in _ARTIFACTS)
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>emberflow</groupId>
  <artifactId>local-hadoop</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def _dependency(artifact: str, classifier: str = "") -> str:
    kind = f"<classifier>{classifier}</classifier>" if classifier else ""
    return (
        f"    <dependency><groupId>org.apache.hadoop</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{HADOOP_VERSION}</version>{kind}</dependency>"
    )
