"""How fast does a folder go to HDFS and back, against Hadoop's own shell?

A folder of eight files, up and down, by ``storage.put_folder`` and ``get_folder`` and by ``FsShell -put`` and
``-get``, each as a program of its own, in turn, on an HDFS of this machine (a NameNode and a DataNode). Seconds
include the start of Python and of the JVM; CPU seconds are those of the program alone, without the servers.
``python -m benchmarks.storage [REPEATS] [MEGABYTES]``
"""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from benchmarks.measure import alternate, print_result, summary
from emberflow import storage
from emberflow.local.hadoop import LocalHadoop, running_hadoop

REPEATS = 5
MEGABYTES = 1024
FILES = 8
GOAL = 1.0  # Hadoop's seconds per second of ours, at least
OURS = "from emberflow import storage; import sys; storage.{}(sys.argv[1], sys.argv[2])"


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    megabytes = int(sys.argv[2]) if len(sys.argv) > 2 else MEGABYTES
    with running_hadoop() as hadoop, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder / "source", megabytes)
        stored = storage.join(hadoop.default_fs, hadoop.home, "stored")
        storage.put_folder(folder / "source", stored)
        actions: dict[str, Callable[[], float]] = {
            "put emberflow": partial(put, hadoop, folder / "source", by_shell=False),
            "put shell": partial(put, hadoop, folder / "source", by_shell=True),
            "get emberflow": partial(get, hadoop, stored, folder, by_shell=False),
            "get shell": partial(get, hadoop, stored, folder, by_shell=True),
        }
        cpu: defaultdict[str, list[float]] = defaultdict(list)
        sides = {side: partial(measured, side, action, cpu[side]) for side, action in actions.items()}
        figures = alternate(sides, repeats)
    figures_of = {
        "megabytes": megabytes,
        "seconds": {side: summary(each) for side, each in figures.items()},
        "cpu_seconds": {side: summary(each) for side, each in cpu.items()},
        "times_as_fast": ratios(figures),
        "times_less_cpu": ratios(cpu),
        "load": psutil.getloadavg()[2],
    }
    is_met = min(ratios(figures).values()) >= GOAL
    print_result("storage", figures_of | {"goal": GOAL, "is_met": is_met})


def measured(side: str, action: Callable[[], float], cpu: list[float]) -> float:
    """Do it once; note the CPU seconds of the program that did it, and say what it took."""
    before = children_cpu()
    seconds = action()
    cpu.append(children_cpu() - before)
    print(f"{side}: {seconds:.1f} s, {cpu[-1]:.1f} s of CPU", file=sys.stderr, flush=True)
    return seconds


def children_cpu() -> float:
    """Return the CPU seconds of all children that have ended; the servers run on and do not count."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def ratios(figures: Mapping[str, list[float]]) -> dict[str, float]:
    """Return how many times the shell takes as much as Emberflow."""
    median = {side: summary(each)["median"] for side, each in figures.items()}
    return {way: round(median[f"{way} shell"] / median[f"{way} emberflow"], 2) for way in ("put", "get")}


def make_files(folder: Path, megabytes: int) -> None:
    folder.mkdir()
    numbers = np.random.default_rng(1)
    for index in range(FILES):
        (folder / f"{index}.bin").write_bytes(numbers.bytes((megabytes << 20) // FILES))


def put(hadoop: LocalHadoop, source: Path, *, by_shell: bool) -> float:
    target = storage.join(hadoop.default_fs, hadoop.home, uuid.uuid4().hex)
    began = time.perf_counter()
    if by_shell:
        hadoop.run_fs_shell("-put", str(source), target)
    else:
        run_ours("put_folder", str(source), target)
    seconds = time.perf_counter() - began
    storage.delete(target)
    return seconds


def get(hadoop: LocalHadoop, stored: str, folder: Path, *, by_shell: bool) -> float:
    copy = folder / "copy"
    began = time.perf_counter()
    if by_shell:
        hadoop.run_fs_shell("-get", stored, str(copy))
    else:
        run_ours("get_folder", stored, str(copy))
    seconds = time.perf_counter() - began
    assert len(list(copy.iterdir())) == FILES
    shutil.rmtree(copy)
    return seconds


def run_ours(function: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", OURS.format(function), *arguments], check=True)


if __name__ == "__main__":
    main()
