"""The tasks of a rendering as processes of this machine: its commands and variables, with addresses on loopback."""

import json
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emberflow.deploy import Job
from emberflow.deploy.rendering import objects_of

KEY_FILES = ("/run/secrets/emberflow-key", "/var/run/emberflow/key")
FIRST, LAST = 20000, 32000  # below the ports that the kernel gives to clients
_REFERENCE = re.compile(r"\$\$|\$\((\w+)\)")


@dataclass(frozen=True)
class Task:
    """One task of a rendering."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]


def tasks_of(job: Job, target: str) -> list[Task]:
    """Return the tasks of a job as the cluster manager would start them."""
    objects = objects_of(job, target)
    if target == "docker-compose":
        return list(_services(objects[0]))
    return [task for each in objects if each["kind"] in ("Job", "StatefulSet") for task in _pods(each)]


def _services(compose: dict[str, Any]) -> Iterator[Task]:
    for name, service in compose["services"].items():
        env = {key: text.replace("$$", "$") for key, text in service["environment"].items()}
        yield Task(name, tuple(word.replace("$$", "$") for word in service["command"]), env)


def _pods(job: dict[str, Any]) -> Iterator[Task]:
    """Do what Kubernetes does: a pod for each index, with references to earlier variables expanded."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    role = job["metadata"]["labels"]["app.kubernetes.io/component"]
    counted = "completions" if job["kind"] == "Job" else "replicas"
    for index in range(job["spec"][counted]):
        env = {"JOB_COMPLETION_INDEX": str(index)} if job["kind"] == "Job" else {}
        for each in container["env"]:
            env[each["name"]] = _expanded(each["value"], env) if "value" in each else str(index)
        yield Task(f"{role}-{index}", tuple(_expanded(word, env) for word in container["command"]), env)


def _expanded(text: str, env: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda found: "$" if found[1] is None else env.get(found[1], found[0]), text)


class Running:
    """Tasks that run here, each with its output in a file.

    Attributes:
        processes: By the name of the task.
    """

    def __init__(self, folder: Path) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder

    def start(self, task: Task, **more: str) -> None:
        with (self._folder / f"{task.name}.log").open("wb") as log:
            self.processes[task.name] = subprocess.Popen(
                task.command,
                cwd=self._folder,
                env=_own_environment() | dict(task.env) | more,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def output(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def codes(self, timeout: float) -> dict[str, int]:
        """Wait for the end of all tasks, and return their exit codes."""
        ends = time.monotonic() + timeout
        for name, process in self.processes.items():
            try:
                process.wait(max(ends - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} still runs:\n{self.outputs()}") from None
        return {name: process.returncode for name, process in self.processes.items()}

    def outputs(self) -> str:
        return "\n".join(f"--- {name}\n{self.output(name)}" for name in self.processes)

    def await_text(self, name: str, text: str, timeout: float = 60.0) -> None:
        """Wait until a task has printed a text."""
        ends = time.monotonic() + timeout
        while text not in self.output(name):
            assert self.processes[name].poll() is None, self.outputs()
            assert time.monotonic() < ends, f"no {text!r}:\n{self.outputs()}"
            time.sleep(0.02)  # a file offers nothing to wait on

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        self.processes[name].send_signal(number)


@contextmanager
def running(tasks: list[Task], folder: Path) -> Iterator[Running]:
    """Start all tasks, the last first, since they may come in any order; afterwards none is left."""
    found = Running(folder)
    try:
        for task in reversed(tasks):
            found.start(task)
        yield found
    finally:
        for process in found.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in found.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()


def local(tasks: list[Task], folder: Path) -> list[Task]:
    """Return the tasks with addresses on loopback, the key in a file of the folder, and this Python."""
    key = folder / "run.key"
    key.touch(mode=0o600)
    key.write_text(secrets.token_hex(32))
    cluster = json.loads(tasks[0].env["EMBERFLOW_CLUSTER"])
    addresses = [address for of_role in cluster.values() for address in of_role]
    replaced = dict(zip(addresses, _free_addresses(len(addresses)), strict=True))
    replaced |= dict.fromkeys(KEY_FILES, str(key))

    def placed(text: str) -> str:
        for old, new in replaced.items():
            text = text.replace(old, new)
        return text

    return [
        Task(
            task.name,
            (sys.executable, *map(placed, task.command[1:])),
            {name: placed(value) for name, value in task.env.items()},
        )
        for task in tasks
    ]


def _free_addresses(count: int) -> list[str]:
    """Return addresses whose port and the next one are free."""
    starts = random.sample(range(FIRST, LAST, 2), LAST // 4 - FIRST // 4)
    free = (port for port in starts if _is_free(port) and _is_free(port + 1))
    return [f"127.0.0.1:{port}" for _, port in zip(range(count), free, strict=False)]


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _own_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("EMBERFLOW_CLUSTER")}
