"""The process that scores on GPUs: shared, asked to leave, killed, refused; and nodes that wait for it."""
# ruff: noqa: N802 - the stand-in's names are NVML's

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from emberflow._plan import deadlines
from emberflow._score.gpu_scorer import connected, gpu_scorer
from emberflow._task.gpu_claims import await_free
from emberflow.errors import ClusterError, ModelError, PeerError
from tests.unit.test_score_predictor import BATCH, spec_of

DEADLINE = 20.0


@pytest.fixture
def local_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An executor's folder, with a name too long for a socket; nothing is left in it after the test."""
    folder = tmp_path / ("spark-" + 100 * "x")
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    yield folder
    for pid in servers(folder):  # of a test that failed
        os.kill(pid, signal.SIGKILL)
    await_true(lambda: not list(folder.iterdir()), "the server's folder goes with it")


@pytest.fixture
def device() -> str:
    """A GPU that no other test of this machine pretends to have."""
    return f"GPU-{uuid.uuid4()}"


def await_true(holds: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, what
        pause.wait(0.02)


def servers(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def telling() -> Any:
    """Say in which process it runs; its one GPU is in the environment."""
    visible = os.environ["CUDA_VISIBLE_DEVICES"]
    growth = os.environ["TF_FORCE_GPU_ALLOW_GROWTH"]
    return lambda x: (x * 2, np.full(len(x), os.getpid(), np.float64), np.full(len(x), f"{visible} {growth}"))


def pid_of(score: Any) -> int:
    return int(score(BATCH).column("pid")[0].as_py())


SPEC = spec_of(telling, "telling", outputs=("y", "pid", "seen"))
SPEC = dataclasses.replace(
    SPEC, outputs=(*SPEC.outputs[:2], dataclasses.replace(SPEC.outputs[2], type=pa.string()))
)


def test_tasks_share_a_process_that_ends_after_the_last(local_dir: Path, device: str) -> None:
    with gpu_scorer(SPEC, (device,)) as score:
        answer = score(BATCH)
        assert answer.column("y").to_pylist() == [2.0, 4.0, 6.0]
        assert answer.column("seen").to_pylist() == [f"{device} true"] * 3
        pid = int(answer.column("pid")[0].as_py())
        with gpu_scorer(SPEC, (device,)) as beside:
            assert pid_of(beside) == pid
    with gpu_scorer(SPEC, (device,)) as later:
        assert pid_of(later) == pid
    assert servers(local_dir) == [pid]
    (folder,) = local_dir.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    started = time.monotonic()
    await_true(lambda: not servers(local_dir), "it ends when it has nothing to do")
    assert time.monotonic() - started > deadlines.SCORER_IDLE_TIMEOUT / 2
    await_true(lambda: not psutil.pid_exists(pid), "it is gone")


@pytest.mark.alone
def test_a_node_that_waits_for_the_gpu_has_it_at_once_when_no_task_scores(
    local_dir: Path, device: str
) -> None:
    with gpu_scorer(doubled(), (device,)) as score:
        score(BATCH)
        (pid,) = servers(local_dir)
        with pytest.raises(ClusterError, match=f"GPU {device}, process {pid}") as caught:
            await_free([device], timeout=0.2)
        assert "Wait until the jobs that score" in caught.value.fix
        score(BATCH)  # it was not disturbed
        waiting = threading.Thread(target=await_free, args=([device],))
        waiting.start()
    started = time.monotonic()
    waiting.join(DEADLINE)
    assert not waiting.is_alive()
    assert time.monotonic() - started < deadlines.SCORER_IDLE_TIMEOUT / 2, (
        "it does not wait for the idle limit"
    )
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    await_free([device], timeout=0.0)


def doubled() -> Any:
    return spec_of(lambda: lambda x: x * 2, "double")


def test_processes_for_overlapping_gpus_follow_each_other(local_dir: Path, device: str) -> None:
    other = f"GPU-{uuid.uuid4()}"
    with gpu_scorer(doubled(), (device,)) as score:
        score(BATCH)
        (first,) = servers(local_dir)
    with gpu_scorer(doubled(), (device, other)) as score:
        score(BATCH)
        (second,) = servers(local_dir)
    assert first != second
    await_free([device, other])


@pytest.mark.fault
def test_a_killed_process_is_an_error_and_the_next_task_starts_another(local_dir: Path, device: str) -> None:
    def dies() -> Any:
        return lambda _: os.kill(os.getpid(), signal.SIGKILL)

    with (
        pytest.raises(ModelError, match="exited without reporting a result"),
        gpu_scorer(spec_of(dies, "dies"), (device,)) as score,
    ):
        score(BATCH)
    with gpu_scorer(doubled(), (device,)) as score:
        assert score(BATCH).column("y").to_pylist() == [2.0, 4.0, 6.0]
    await_free([device])


def test_errors_of_the_model_come_back_and_harm_nobody_else(local_dir: Path, device: str) -> None:
    def breaks() -> Any:
        raise OSError("no such weights")

    with gpu_scorer(doubled(), (device,)) as score:
        pids = servers(local_dir)
        with (
            pytest.raises(ModelError, match="The model raised OSError: no such weights"),
            gpu_scorer(spec_of(breaks, "breaks"), (device,)),
        ):
            pass
        assert score(BATCH).num_rows == 3
        assert servers(local_dir) == pids
    await_free([device])


@pytest.mark.fault
def test_nobody_gets_in_without_the_key(local_dir: Path, device: str) -> None:
    with connected((device,)):
        (folder,) = local_dir.iterdir()
        (folder / "key").write_bytes(bytes(32))
        with pytest.raises(PeerError, match="another key"), connected((device,)):
            pass


@pytest.mark.fault
def test_it_ends_with_the_executor(local_dir: Path, device: str, tmp_path: Path) -> None:
    """A JVM has a daemon, which has a worker, which starts the process and goes on scoring."""
    code = (
        "import sys, os\n"
        "from emberflow._score.gpu_scorer import gpu_scorer\n"
        "from tests.unit.test_gpu_scoring import BATCH, doubled\n"
        f"with gpu_scorer(doubled(), ({device!r},)) as score:\n"
        "    score(BATCH)\n"
        "    print('scored', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    jvm = subprocess.Popen(
        [sys.executable, "-c", child, child, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert jvm.stdout is not None and jvm.stdin is not None  # noqa: PT018
    assert jvm.stdout.readline() == "scored\n"
    assert len(servers(local_dir)) == 1
    others = psutil.Process(jvm.pid).children(recursive=True)
    jvm.kill()
    jvm.wait()
    started = time.monotonic()
    await_true(lambda: not servers(local_dir), "the kernel tells its keeper")
    assert time.monotonic() - started < deadlines.SCORER_IDLE_TIMEOUT
    jvm.stdin.close()
    jvm.stdout.close()
    psutil.wait_procs([process for process in others if process.is_running()], timeout=DEADLINE)


class FullGpu:
    """A GPU whose memory somebody has taken, for so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def nvmlDeviceGetHandleByUUID(self, _: str) -> int:
        return 0

    def nvmlDeviceGetMemoryInfo(self, _: int) -> Any:
        self.looks -= 1
        return SimpleNamespace(total=100 << 20, free=(90 << 20) if self.looks < 0 else (1 << 20))

    def nvmlDeviceGetComputeRunningProcesses(self, _: int) -> list[Any]:
        return [SimpleNamespace(pid=1234)]


@pytest.mark.fault
def test_a_node_waits_for_memory_that_others_have_and_says_who_they_are(device: str) -> None:
    await_free([device], nvml=FullGpu(looks=2))
    with pytest.raises(ClusterError, match=r"with 1 of 100 MiB free; it is used by process 1234") as caught:
        await_free([device], timeout=0.1, nvml=FullGpu(looks=1000))
    assert "nvidia-smi" in caught.value.fix
