"""Free GPUs of this machine, as nvidia-smi tells."""

import logging
import random
import subprocess
import threading
from typing import Any

from emberflow_compat import deadlines
from tensorflowonspark.old_errors import GpuError

logger = logging.getLogger(__name__)

MAX_RETRIES = 3
AS_STRING = "string"
AS_LIST = "list"


def is_gpu_available() -> bool:
    """Tell whether nvidia-smi can list GPUs here."""
    try:
        return bool(_nvidia_smi("--list-gpus").strip())
    except (OSError, subprocess.SubprocessError):
        return False


def get_gpus(num_gpu: int = 1, worker_index: int = -1, format: str = AS_STRING) -> Any:  # noqa: A002 - as it was
    """Return the numbers of free GPUs: those on which no process computes.

    Args:
        num_gpu: How many.
        worker_index: Which of several processes on this machine asks: each takes its own block of free GPUs; -1
            selects at random.
        format: AS_STRING, "0,1"; AS_LIST, ["0", "1"].

    Raises:
        GpuError: Fewer are free, also after waiting for others to be done.
    """
    free: list[str] = []
    for retry in range(MAX_RETRIES + 1):
        if retry:
            logger.warning("Waiting for free GPUs: %d wanted, %d free", num_gpu, len(free))
            threading.Event().wait(deadlines.GPU_RETRY * retry)
        free = _free_gpus()
        if len(free) >= num_gpu:
            break
    else:
        raise GpuError(
            f"Unable to find {num_gpu} free GPU(s). Received: {len(free)} are free of those that nvidia-smi lists.",
            fix="Ask for fewer (num_gpus), or end the processes that nvidia-smi shows.",
        )
    selected = _selected(free, num_gpu, worker_index)
    return ",".join(selected) if format == AS_STRING else selected


def _selected(free: list[str], wanted: int, index: int) -> list[str]:
    if index < 0:
        return random.sample(free, wanted)
    first = index * wanted
    return [free[(first + place) % len(free)] for place in range(wanted)]


def _free_gpus() -> list[str]:
    listed = _query("--query-gpu=index,uuid")
    busy = {uuid for (uuid,) in _query("--query-compute-apps=gpu_uuid")}
    return [index for index, uuid in listed if uuid not in busy]


def _query(what: str) -> list[list[str]]:
    lines = _nvidia_smi(what, "--format=csv,noheader").splitlines()
    return [[field.strip() for field in line.split(",")] for line in lines if line.strip()]


def _nvidia_smi(*arguments: str) -> str:
    done = subprocess.run(
        ["nvidia-smi", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=deadlines.NVIDIA_SMI_TIMEOUT,
    )
    return done.stdout
