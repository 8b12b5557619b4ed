"""Shared by all benchmarks: sides taken in turn, medians, CPU seconds of whole process trees, one JSON line."""

import contextlib
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import psutil


def alternate(sides: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Call the sides in turn, `repeats` times each, so that a slow minute of the machine hits all of them.

    Args:
        sides: Name to a function that measures once and returns its figure.
        repeats: How often each is measured.

    Returns:
        Name to figures, in the order of measuring.
    """
    figures: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(repeats):
        for name in names if turn % 2 == 0 else reversed(names):
            figures[name].append(sides[name]())
    return figures


def summary(figures: list[float], digits: int = 3) -> dict[str, Any]:
    """Return median, least and greatest, and how many there are."""
    return {
        "median": round(statistics.median(figures), digits),
        "least": round(min(figures), digits),
        "greatest": round(max(figures), digits),
        "n": len(figures),
    }


class CpuSeconds:
    """CPU seconds that a process tree used during a block, the processes that ended meanwhile included."""

    def __init__(self, pid: int | None = None) -> None:
        self._root = psutil.Process(pid)
        self._seen: dict[tuple[int, float], tuple[float, float]] = {}
        self._commands: dict[tuple[int, float], str] = {}
        self.seconds = 0.0

    def look(self) -> None:
        """Take in what runs now; call it as often as short processes come and go."""
        for process in [self._root, *self._root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                now = times.user + times.system
                key = (process.pid, process.create_time())
                first, _ = self._seen.setdefault(key, (now, now))
                self._seen[key] = (first, now)
                if key not in self._commands:
                    self._commands[key] = " ".join(process.cmdline())
        self.seconds = sum(last - first for first, last in self._seen.values())

    def by_kind(self, kind_of: Callable[[str], str]) -> dict[str, float]:
        """Return the seconds of each kind of processes.

        Args:
            kind_of: Tells the kind from a command line.
        """
        kinds: dict[str, float] = {}
        for key, (first, last) in self._seen.items():
            kind = kind_of(self._commands.get(key, ""))
            kinds[kind] = kinds.get(kind, 0.0) + last - first
        return kinds


@contextlib.contextmanager
def cpu_seconds(pid: int | None = None, every: float = 0.1) -> Iterator[CpuSeconds]:
    """Measure the CPU seconds of this process (or `pid`) and all below it for the length of the block.

    Processes are looked at every `every` seconds: one that lives shorter may be missed, and one that is born
    within the block is counted from the first look at it.
    """
    import threading

    counter, over = CpuSeconds(pid), threading.Event()

    def watch() -> None:
        while not over.wait(every):
            counter.look()

    counter.look()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield counter
    finally:
        over.set()
        thread.join()
        counter.look()


def machine() -> dict[str, Any]:
    """Return where this was measured."""
    return {
        "cores": psutil.cpu_count(),
        "memory_gb": psutil.virtual_memory().total >> 30,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
    }


def print_result(name: str, figures: Mapping[str, Any]) -> None:
    """Print the one line that a benchmark ends with."""
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    print(json.dumps({"benchmark": name, "date": when, **figures, "machine": machine()}), flush=True)


def seconds_of(action: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
