"""`emberflow doctor`: what is wrong with this machine or cluster, one line each, with a fix."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.text import Text

from emberflow.cli import doctor_checks as checks
from emberflow.cli.doctor_checks import Finding
from emberflow.errors import ClusterError
from emberflow.local.java import find_java_home

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failure": ("✗", "red"), "unknown": ("?", "cyan")}
WIDTH = len("Executors' tensorflow ")  # the longest name of a check


def run_doctor(master: str | None, timeout: float) -> int:
    """Print each finding as soon as it is there; return the exit code."""
    console = Console(highlight=False, soft_wrap=True)
    counts = dict.fromkeys(MARKS, 0)
    for finding in _findings(master, timeout):
        counts[finding.state] += 1
        _show(console, finding)
    if counts["failure"]:
        console.print(f"\n[red]{counts['failure']} to fix[/red] before anything can run.")
        return 1
    console.print("\n[green]Everything that was checked works.[/green]")
    return 0


def _findings(master: str | None, timeout: float) -> Iterator[Finding]:
    yield checks.check_python()
    java = checks.check_java()
    yield java
    yield from checks.check_packages()
    yield checks.check_ports()
    yield checks.check_host_name()
    if master is None or master.startswith("local"):
        yield checks.check_executor_python()
    if master is None:
        yield Finding("Executors", "unknown", "not checked", "emberflow doctor --master spark://HOST:PORT")
    elif java.state == "failure" and not master.startswith("sc://"):
        yield Finding("Executors", "unknown", "not checked: Java is missing", "install Java first; see above")
    else:
        yield from ask_executors(master, timeout)


def _show(console: Console, finding: Finding) -> None:
    mark, colour = MARKS[finding.state]
    console.print(
        Text(f" {mark} ", style=colour) + Text(f"{finding.what:<{WIDTH}}", style="bold") + Text(finding.text)
    )
    if finding.fix:
        console.print(Text(f"{'':{WIDTH + 3}}→ {finding.fix}", style=colour))


def ask_executors(master: str, timeout: float) -> list[Finding]:
    """Start a session on the cluster in a child process, and check the answers of its executors."""
    command = [sys.executable, "-m", "emberflow.cli.doctor_executors", master]
    env = dict(os.environ)
    with suppress(ClusterError):  # Spark Connect needs no Java here
        env["JAVA_HOME"] = str(find_java_home())
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=env, start_new_session=True)
        try:
            output, _ = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return [_no_answer(master, timeout)]
        finally:
            _kill(child)
        if child.returncode != 0:
            log.seek(0)
            return [_no_session(master, log.read().decode(errors="replace"))]
    return check_executors(json.loads(output.decode().strip().splitlines()[-1]))


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the session's Python and its JVM, which share a process group."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def _no_answer(master: str, timeout: float) -> Finding:
    return Finding(
        "Executors",
        "failure",
        f"none answered within {timeout:.0f} s: {master} has no free slot, or cannot reach this machine",
        "check the cluster's web page for free cores; set spark.driver.host to an address that executors can reach; "
        f"where executors take long to start, pass --timeout {2 * timeout:.0f}",
    )


def _no_session(master: str, log: str) -> Finding:
    from emberflow._driver.spark_errors import known_error

    lines = [line for line in log.strip().splitlines() if line.strip()]
    last = next(
        (line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[-1:] or [""]
    )
    text = last if isinstance(last, str) else last[0]
    if known := known_error(log):  # the session started, but its executors cannot run our Python
        return Finding("Executors", "failure", known.problem, known.fix)
    return Finding(
        "Executors", "failure", f"no session on {master}: {text.strip()}", "check the master's address"
    )


def check_executors(found: dict[str, Any]) -> list[Finding]:
    """Check slots, Python and packages in the answers of the executors."""
    answers = found["answers"]
    hosts = sorted({answer["host"] for answer in answers})
    where = ", ".join(hosts[:4]) + (", ..." if len(hosts) > 4 else "")
    slots = _check_slots(found["slots"], where, is_allocating=found["is_allocating"])
    findings = [slots, *_check_memory(found["memory"]), _check_pythons(answers)]
    return findings + [
        _check_package(name, answers) for name in ("emberflow", "tensorflow", "keras", "pandas")
    ]


def _check_slots(slots: int | None, where: str, *, is_allocating: bool) -> Finding:
    if slots is not None and is_allocating:
        return Finding("Executor slots", "ok", f"{slots} on {where} now; more come by dynamic allocation")
    if slots is None:
        return Finding("Executor slots", "unknown", f"not known on Spark Connect; tasks ran on {where}")
    return Finding("Executor slots", "ok", f"{slots} on {where}: up to {slots} nodes can train together")


def _check_memory(found: dict[str, Any] | None) -> list[Finding]:
    """Compare what a container has beside the executor's JVM with what TensorFlow needs there."""
    from emberflow._driver.executor_memory import ExecutorMemory

    if found is None:
        return []
    memory = ExecutorMemory(**found)
    nodes = f"{memory.nodes} node{'s' if memory.nodes > 1 else ''}"
    text = f"{memory.overhead} MB outside of the JVM for up to {nodes} per executor"
    if memory.overhead >= memory.needed:
        return [Finding("Executor memory", "ok", text)]
    return [
        Finding(
            "Executor memory",
            "warning",
            f"{text}; TensorFlow needs about {memory.needed} MB there, and a container that takes more is killed",
            f"spark.executor.memoryOverhead={memory.needed}m, or fewer spark.executor.cores",
        )
    ]


def _check_pythons(answers: list[dict[str, Any]]) -> Finding:
    what = "Executors' Python"
    mine = list(sys.version_info[:2])
    for answer in answers:
        if answer["python"] != mine:
            theirs = ".".join(map(str, answer["python"]))
            text = f"{theirs} on {answer['host']} ({answer['program']}), but {mine[0]}.{mine[1]} here"
            return Finding(
                what,
                "failure",
                text,
                f"export PYSPARK_PYTHON=/path/to/python{mine[0]}.{mine[1]} of the executors",
            )
    programs = sorted({answer["program"] for answer in answers})
    return Finding(what, "ok", f"{mine[0]}.{mine[1]} everywhere ({', '.join(programs)})")


def _check_package(name: str, answers: list[dict[str, Any]]) -> Finding:
    what = f"Executors' {name}"
    for answer in answers:
        if f"{name}_error" in answer:
            text = f"cannot be imported on {answer['host']}: {answer[f'{name}_error']}"
            fix = (
                f"{answer['program']} -m pip install emberflow, or set PYSPARK_PYTHON to a Python that has it"
            )
            return Finding(what, "failure", text, fix)
    theirs = sorted({answer[name] for answer in answers})
    mine = checks.installed_version(name)
    if theirs != [mine]:
        return Finding(
            what, "warning", f"{', '.join(theirs)}, but {mine} here", f"install {name}=={mine} everywhere"
        )
    return Finding(what, "ok", f"{mine}, as here")
