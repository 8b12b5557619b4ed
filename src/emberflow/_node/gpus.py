"""Which GPUs a node may see, and what it did with them."""

import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from emberflow.errors import ClusterError

SAMPLE_SECONDS = 5.0


def visible_devices(addresses: Sequence[str], executor_value: str | None) -> tuple[str, ...]:
    """Return what CUDA_VISIBLE_DEVICES must name for the GPUs that Spark gave.

    Spark's addresses may be numbers, UUIDs or MIG names. Where the executor itself sees only some GPUs
    (its own CUDA_VISIBLE_DEVICES), numbers count within those.

    >>> visible_devices(["1"], "GPU-a,GPU-b")
    ('GPU-b',)
    >>> visible_devices(["MIG-7"], "0,1")
    ('MIG-7',)
    """
    names = [name.strip() for name in (executor_value or "").split(",") if name.strip()]
    if not names or not all(address.isdigit() for address in addresses):
        return tuple(addresses)
    if any(int(address) >= len(names) for address in addresses):
        raise ClusterError(
            f"Spark gave GPU addresses {list(addresses)}, but the executor sees only "
            f"CUDA_VISIBLE_DEVICES={executor_value}.",
            fix="Let the discovery script count within CUDA_VISIBLE_DEVICES, or unset it on the executors.",
        )
    return tuple(names[int(address)] for address in addresses)


def gpu_environment(devices: Sequence[str]) -> dict[str, str]:
    """Return the variables that show a node its own GPUs and no other; none of them on a CPU node."""
    shown = {"CUDA_VISIBLE_DEVICES": ",".join(devices)}
    return shown | {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if devices else shown


@contextlib.contextmanager
def claimed_by_nvml(count: int, nvml: Any = None) -> Iterator[tuple[str, ...]]:
    """Hold `count` GPUs that no other process uses, by UUID, for the length of the block.

    Only for hosts whose GPUs Spark does not manage. A lock file per GPU keeps the nodes of one host apart, also
    between NVML's look at a GPU and the moment TensorFlow takes it.
    """
    nvml = nvml or _nvml()
    if nvml is None:
        raise ClusterError(
            'gpu_source="nvml" needs the NVIDIA driver and its Python package on every executor.',
            fix="pip install 'emberflow[gpu]' on the executors.",
        )
    with contextlib.ExitStack() as locks:
        held: list[str] = []
        for number in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            name = _text(nvml.nvmlDeviceGetUUID(handle))
            if (
                len(held) < count
                and not nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                and _lock(name, locks)
            ):
                held.append(name)
        if len(held) < count:
            raise ClusterError(
                f"This node needs {count} free GPUs. Received: {len(held)} free on its host.",
                fix="Ask for fewer GPUs or workers, or let Spark schedule GPUs (spark.executor.resource.gpu.*).",
            )
        yield tuple(held)


class GpuMonitor:
    """Samples name, memory and utilisation of one's own GPUs until it is stopped."""

    def __init__(self, devices: Sequence[str], nvml: Any = None) -> None:
        self._nvml: Any = nvml or (_nvml() if devices else None)
        self._devices = devices
        self._peaks: dict[str, dict[str, Any]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emberflow-gpus", daemon=True)
        if self._nvml is not None:
            self._thread.start()

    def stop(self) -> list[dict[str, Any]]:
        """Stop sampling and return one dictionary per GPU: name, memory in bytes, highest use seen."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        return list(self._peaks.values())

    def _run(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # NVML may lose a device; training must not
                self._sample()
            if self._stop.wait(SAMPLE_SECONDS):
                return

    def _sample(self) -> None:
        for device in self._devices:
            handle = self._handle(device)
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            load = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu
            name = _text(self._nvml.nvmlDeviceGetName(handle))
            seen: Mapping[str, Any] = self._peaks.get(device, {})
            self._peaks[device] = {
                "device": device,
                "name": name,
                "memory": int(memory.total),
                "memory_peak": max(int(memory.used), seen.get("memory_peak", 0)),
                "utilisation_peak": max(int(load), seen.get("utilisation_peak", 0)),
            }

    def _handle(self, device: str) -> Any:
        if device.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(device))
        return self._nvml.nvmlDeviceGetHandleByUUID(device)


def _nvml() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no package, no driver, no GPU: all the same here
        return None
    return pynvml


def _lock(name: str, locks: contextlib.ExitStack) -> bool:
    path = Path(tempfile.gettempdir()) / f"emberflow-gpu-{os.getuid()}-{name.replace('/', '_')}.lock"
    file: IO[str] = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return False
    locks.callback(path.unlink, missing_ok=True)
    locks.callback(file.close)
    return True


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
