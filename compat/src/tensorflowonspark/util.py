"""Small helpers that programs call: addresses, paths, the executor's number."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from tensorflowonspark import gpu_info

EXECUTOR_ID = "executor_id"  # a file in the executor's working directory


def single_node_env(num_gpus: int = 1, worker_index: int = -1, nodes: Sequence[str] = ()) -> None:
    """Let TensorFlow in this process see so many free GPUs, or none where there are none.

    Args:
        num_gpus: How many.
        worker_index: The number of this process among all that take GPUs; -1 selects at random.
        nodes: The hosts of these processes, in their order: only those of the same host count.
    """
    if worker_index >= 0 and nodes:
        mine = nodes[worker_index]
        worker_index = [index for index, host in enumerate(nodes) if host == mine].index(worker_index)
    is_wanted = num_gpus > 0 and gpu_info.is_gpu_available()
    found = gpu_info.get_gpus(num_gpus, worker_index) if is_wanted else ""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(found)


def get_ip_address() -> str:
    """Return the address of this machine: Spark's where it is set, else that of the way out."""
    if address := os.environ.get("SPARK_LOCAL_IP"):
        return address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(
                ("192.0.2.1", 9)
            )  # an address for documentation: nothing is sent, the kernel selects a way
        except OSError:
            return "127.0.0.1"
        return str(sock.getsockname()[0])


def find_in_path(path: str, file: str) -> str | bool:
    """Return the first file of this name in a list of folders such as PATH, or False."""
    for folder in path.split(os.pathsep):
        candidate = Path(folder) / file
        if candidate.exists() and candidate.is_file():
            return str(candidate)
    return False


def write_executor_id(num: int) -> None:
    """Keep the executor's number in its working directory."""
    Path(EXECUTOR_ID).write_text(str(num))


def read_executor_id() -> int:
    """Return the number that `write_executor_id` has kept here."""
    return int(Path(EXECUTOR_ID).read_text())
