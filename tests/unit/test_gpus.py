"""Which GPUs a node sees: names of every kind, claims by NVML, what is seen of them. NVML is a stand-in here."""
# ruff: noqa: N802 - the stand-in's names are NVML's

import subprocess
import sys
import threading
import uuid
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from emberflow._task.gpus import GpuMonitor, claimed_by_nvml, gpu_environment, visible_devices
from emberflow.errors import ClusterError

MIG = "MIG-GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f/7/0"


class FakeNvml:
    """Three GPUs, the second of them busy; remembers nothing."""

    def __init__(self, gpus: int = 3, busy: tuple[int, ...] = (1,), text: type = bytes) -> None:
        self.uuids = [f"GPU-{uuid.uuid4()}" for _ in range(gpus)]
        self.busy = busy
        self.used = 100
        self.load = 10
        self.sampled = threading.Event()
        self._text = text

    def nvmlDeviceGetCount(self) -> int:
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:
        return 7 if name == MIG else self.uuids.index(name)

    def nvmlDeviceGetUUID(self, handle: int) -> Any:
        return self.uuids[handle].encode() if self._text is bytes else self.uuids[handle]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=1)] if handle in self.busy else []

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA H100"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=1000, used=self.used)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        self.sampled.set()
        if handle == 7:
            raise OSError("not supported on a slice")
        return SimpleNamespace(gpu=self.load)


@pytest.mark.parametrize(
    ("addresses", "executor_value", "seen"),
    [
        (["1"], None, ("1",)),
        (["1"], "", ("1",)),
        (["0", "2"], "5,6,7", ("5", "7")),
        (["1"], " GPU-a , GPU-b ", ("GPU-b",)),
        (["1"], f"GPU-a,{MIG}", (MIG,)),
        ([MIG], "0,1", (MIG,)),
        (["GPU-b", "GPU-a"], "GPU-a,GPU-b", ("GPU-b", "GPU-a")),
    ],
)
def test_addresses_of_every_kind_become_names_for_cuda(
    addresses: list[str], executor_value: str | None, seen: tuple[str, ...]
) -> None:
    assert visible_devices(addresses, executor_value) == seen


def test_an_address_outside_of_what_the_executor_sees_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"\['2'\](.|\n)*CUDA_VISIBLE_DEVICES=GPU-a,GPU-b(.|\n)*Fix: "):
        visible_devices(["2"], "GPU-a,GPU-b")


def test_a_node_with_gpus_sees_its_own_in_the_order_of_the_bus_and_grows_memory() -> None:
    assert gpu_environment((MIG, "GPU-a")) == {
        "CUDA_VISIBLE_DEVICES": f"{MIG},GPU-a",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


def test_a_node_without_gpus_sees_none() -> None:
    assert gpu_environment(()) == {"CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize("text", [bytes, str])
def test_nvml_gives_free_gpus_by_uuid_each_to_one_node(text: type) -> None:
    nvml = FakeNvml(text=text)
    free = {nvml.uuids[0], nvml.uuids[2]}
    with claimed_by_nvml(1, nvml=nvml) as first, claimed_by_nvml(1, nvml=nvml) as second:
        assert {*first, *second} == free
        with pytest.raises(ClusterError, match="Received: 0 free"), claimed_by_nvml(1, nvml=nvml):
            pass
    with claimed_by_nvml(2, nvml=nvml) as both:
        assert set(both) == free


def test_a_refused_claim_gives_back_what_it_had() -> None:
    nvml = FakeNvml()
    with (
        pytest.raises(ClusterError, match=r"needs 3 free GPUs\. Received: 2 free"),
        claimed_by_nvml(3, nvml=nvml),
    ):
        pass
    with claimed_by_nvml(2, nvml=nvml) as both:
        assert len(both) == 2


@pytest.mark.parametrize(("executor_value", "number"), [("2", 2), ("{2}", 2), ("{0}", 0), ("", 0)])
def test_nvml_looks_only_at_what_the_executor_sees(executor_value: str, number: int) -> None:
    nvml = FakeNvml()
    with claimed_by_nvml(1, executor_value.format(*nvml.uuids), nvml) as held:
        assert held == (nvml.uuids[number],)


HOLDER = """
import sys
from emberflow._task.gpu_locks import try_lock
lock = try_lock(sys.argv[1])
print(lock is not None, flush=True)
sys.stdin.read()
"""


def test_a_claim_of_another_process_holds_until_that_is_killed() -> None:
    nvml = FakeNvml(gpus=1, busy=())
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDER, nvml.uuids[0]]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with pytest.raises(ClusterError, match="Received: 0 free"), claimed_by_nvml(1, nvml=nvml):
            pass
        holder.kill()
    with claimed_by_nvml(1, nvml=nvml) as held:
        assert held == (nvml.uuids[0],)


def test_without_the_nvidia_library_nvml_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ClusterError, match=r"emberflow\[gpu\]"), ExitStack() as held:
        held.enter_context(claimed_by_nvml(1))


def test_the_monitor_keeps_the_highest_use_of_own_devices() -> None:
    nvml = FakeNvml()
    monitor = GpuMonitor([nvml.uuids[1], MIG, "0", "GPU-gone"], nvml)
    assert nvml.sampled.wait(5)
    monitor.stop()
    nvml.used, nvml.load = 50, 90
    monitor._sample(nvml.uuids[1])
    seen = {each["device"]: each for each in monitor.seen()}
    assert seen[nvml.uuids[1]] == {
        "device": nvml.uuids[1],
        "name": "NVIDIA H100",
        "memory": 1000,
        "memory_used": 50,
        "utilisation": 90,
        "memory_peak": 100,
        "utilisation_peak": 90,
    }
    assert seen["0"]["utilisation_peak"] == 10
    assert seen[MIG]["memory"] == 1000  # a slice says nothing of its load
    assert "GPU-gone" not in seen


def test_the_monitor_of_a_cpu_node_does_nothing() -> None:
    monitor = GpuMonitor(())
    monitor.stop()
    assert monitor.seen() == []
