"""Which GPUs a node may see, and what it did with them."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from emberflow._plan import deadlines
from emberflow._task.gpu_locks import try_lock
from emberflow.errors import ClusterError


def visible_devices(addresses: Sequence[str], executor_value: str | None) -> tuple[str, ...]:
    """Return what CUDA_VISIBLE_DEVICES must name for the GPUs that Spark gave.

    Spark's addresses may be numbers, UUIDs or MIG names. Where the executor itself sees only some GPUs
    (its own CUDA_VISIBLE_DEVICES), numbers count within those.

    >>> visible_devices(["1"], "GPU-a,GPU-b")
    ('GPU-b',)
    >>> visible_devices(["MIG-7"], "0,1")
    ('MIG-7',)
    """
    names = _names_in(executor_value)
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
    if not devices:
        return shown
    # Discovery scripts number GPUs as nvidia-smi does, by their place on the bus; CUDA's default is by speed.
    return shown | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}


@contextlib.contextmanager
def claimed_by_nvml(
    count: int, executor_value: str | None = None, nvml: Any = None
) -> Iterator[tuple[str, ...]]:
    """Hold `count` GPUs that no other process uses, by UUID, for the length of the block.

    Only for hosts whose GPUs Spark does not manage; where the executor itself sees only some GPUs, only of those.
    A lock per GPU keeps the nodes of one host apart, also between NVML's look at a GPU and the moment TensorFlow
    takes it.
    """
    nvml = nvml or load_nvml()
    if nvml is None:
        raise ClusterError(
            'gpu_source="nvml" needs the NVIDIA driver and its Python package on every executor.',
            fix="pip install 'emberflow[gpu]' on the executors.",
        )
    with contextlib.ExitStack() as locks:
        free = (name for name in _free_gpus(nvml, executor_value) if _locked(name, locks))
        held = tuple(name for _, name in zip(range(count), free, strict=False))
        if len(held) < count:
            raise ClusterError(
                f"This node needs {count} free GPUs. Received: {len(held)} free on its host.",
                fix="Ask for fewer GPUs or workers, or let Spark schedule GPUs (spark.executor.resource.gpu.*).",
            )
        yield held


def count_free_gpus(visible: str | None = None) -> int:
    """Return how many GPUs of this host or container no process uses; 0 where there is no NVML.

    Args:
        visible: CUDA_VISIBLE_DEVICES, if only some of them are to be counted.
    """
    nvml = load_nvml()
    return 0 if nvml is None else sum(1 for _ in _free_gpus(nvml, visible))


def _free_gpus(nvml: Any, executor_value: str | None) -> Iterator[str]:
    """Yield the UUIDs of GPUs that this executor may see and on which nothing runs."""
    names = _names_in(executor_value)
    for number in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        # CUDA takes the beginning of a UUID for the whole.
        is_visible = any(name == str(number) or uuid.startswith(name) for name in names) or not names
        if is_visible and not nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            yield uuid


def _locked(uuid: str, locks: contextlib.ExitStack) -> bool:
    lock = try_lock(uuid)
    if lock is not None:
        locks.enter_context(lock)
    return lock is not None


class GpuMonitor:
    """Samples name, memory and utilisation of one's own GPUs until it is stopped."""

    def __init__(self, devices: Sequence[str], nvml: Any = None) -> None:
        self._nvml: Any = nvml or (load_nvml() if devices else None)
        self._devices = devices
        self._peaks: dict[str, dict[str, Any]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emberflow-gpus", daemon=True)
        if self._nvml is not None:
            self._thread.start()

    def seen(self) -> list[dict[str, Any]]:
        """Return one dictionary per GPU: name, memory in bytes, use at the last look, highest use seen so far."""
        return list(self._peaks.values())

    def stop(self) -> None:
        """Stop sampling."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            for device in self._devices:
                with contextlib.suppress(Exception):  # NVML may lose a device; training must not
                    self._sample(device)
            if self._stop.wait(deadlines.GPU_SAMPLE_INTERVAL):
                return

    def _sample(self, device: str) -> None:
        handle = handle_of(self._nvml, device)
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        load = self._load(handle)
        seen: Mapping[str, Any] = self._peaks.get(device, {})
        self._peaks[device] = {
            "device": device,
            "name": _text(self._nvml.nvmlDeviceGetName(handle)),
            "memory": int(memory.total),
            "memory_used": int(memory.used),
            "utilisation": load,
            "memory_peak": max(int(memory.used), seen.get("memory_peak", 0)),
            "utilisation_peak": max(load, seen.get("utilisation_peak", 0)),
        }

    def _load(self, handle: Any) -> int:
        with contextlib.suppress(Exception):  # a slice of a GPU (MIG) does not report it
            return int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        return 0


def handle_of(nvml: Any, device: str) -> Any:
    """Return what NVML calls a GPU that CUDA_VISIBLE_DEVICES names by number or UUID."""
    if device.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(device))
    return nvml.nvmlDeviceGetHandleByUUID(device)


def gpu_identity(device: str, executor: int, nvml: Any = None) -> str:
    """Return what a GPU is called on this host, whoever names it: its UUID.

    Where NVML does not know the GPU, Spark's word counts: an address belongs to one executor at a time.

    Args:
        device: The GPU as CUDA_VISIBLE_DEVICES names it.
        executor: Process id of the executor's JVM.
        nvml: NVIDIA's library, or what stands in for it.
    """
    nvml = nvml or load_nvml()
    with contextlib.suppress(Exception):  # no NVML, or no such GPU
        return _text(nvml.nvmlDeviceGetUUID(handle_of(nvml, device)))
    return f"{executor}-{device}"


def load_nvml() -> Any:
    """Return NVIDIA's library, ready for use, or None where there is none."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no package, no driver, no GPU: all the same here
        return None
    return pynvml


def _names_in(executor_value: str | None) -> list[str]:
    return [name.strip() for name in (executor_value or "").split(",") if name.strip()]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
