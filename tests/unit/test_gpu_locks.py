"""One node per GPU: who holds it, how long others wait, what they are told. Real processes and abstract sockets."""
# ruff: noqa: N802 - the stand-in's names are NVML's

import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from emberflow._plan import deadlines
from emberflow._task.gpu_locks import await_unlocked, lock, try_lock
from emberflow._task.gpus import gpu_identity
from emberflow.errors import ClusterError

HOLDER = """
import sys
from emberflow._task.gpu_locks import lock
held = lock("0", sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(identity: str) -> "Iterator[subprocess.Popen[str]]":
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDER, identity]
    environment = {"EMBERFLOW_RUN": "a-live-cluster"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


@pytest.mark.fault
def test_a_gpu_that_a_node_holds_is_refused_with_the_process_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadlines, "GPU_LOCK_TIMEOUT", 0.1)
    identity = uuid.uuid4().hex
    with holder(identity) as process:
        assert try_lock(identity) is None
        for take in (lock, await_unlocked):
            with pytest.raises(ClusterError) as caught:
                take("0", identity)
            assert f"GPU 0, which Spark gave to this task, but which process {process.pid}" in str(
                caught.value
            )
            assert "of run a-live-cluster" in caught.value.problem
            assert "cluster.stop()" in caught.value.fix
    lock("0", identity).close()
    await_unlocked("0", identity)


def test_a_node_that_is_being_ended_is_waited_for() -> None:
    identity = uuid.uuid4().hex
    with holder(identity) as process:
        ending = threading.Timer(0.2, process.kill)
        ending.start()
        with lock("0", identity):
            assert process.wait() != 0
            assert try_lock(identity) is None


class OneGpu:
    """NVML on a host with one GPU."""

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return [0][number]

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:
        return ["GPU-a"].index(name)

    def nvmlDeviceGetUUID(self, handle: int) -> Any:
        assert handle == 0
        return b"GPU-a"


def test_a_gpu_has_one_identity_by_number_and_uuid_and_belongs_to_an_executor_where_nvml_does_not_know_it() -> (
    None
):
    nvml = OneGpu()
    assert gpu_identity("0", 1, nvml) == gpu_identity("GPU-a", 2, nvml) == "GPU-a"
    assert gpu_identity("3", 1, nvml) == "1-3"
    assert gpu_identity("MIG-a", 2, nvml) == "2-MIG-a"
