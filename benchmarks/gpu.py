"""What do Emberflow's feed and exchange cost on a GPU?

1. Milliseconds per step of two workers that share one GPU over the ring, 5.8 M parameters; beside one worker alone
   (with and without XLA) and beside both without exchange. Also whether both together equal one process.
2. Rows per second of `fit` on the GPU: from the spool, from the spool with batches placed ahead, and Keras on arrays
   in memory; 784 floats to an MLP, and images of 784 bytes to a CNN.

``python -m benchmarks.gpu [ring] [fit] [cpu]``: both parts if none is named, about two minutes. It needs a GPU; "cpu"
tries the program on a machine without one, with few rows. It also runs with an older `emberflow` on the path.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.allreduce import introduce, rank_environment
from benchmarks.measure import print_result, summary

ROOT = Path(__file__).parent.parent
RANKS = 2
LIMITS = {"look": 60, "ring": 90, "fit": 120}  # seconds
GOALS = {"exchange_adds_ms": 5.0, "spool_over_memory": 1.0}


def main() -> None:
    words = sys.argv[1:]
    tiny = ["cpu"] if "cpu" in words else []
    gpu = None if tiny else last_line(*started("look"), limit=LIMITS["look"])
    if gpu is None and not tiny:
        print_result(
            "gpu", {"gpu": None, "why": "TensorFlow finds no GPU on this machine: nothing was measured."}
        )
        return
    figures: dict[str, Any] = {"gpu": gpu, "goals": GOALS}
    for part, measure in (("ring", measure_ring), ("fit", measure_fit)):
        if part in words or not {"ring", "fit"} & set(words):
            figures[part] = attempt(measure, tiny)
            print(f"{part}: {figures[part]}", file=sys.stderr, flush=True)
    print_result("gpu", figures)


def attempt(measure: Any, tiny: list[str]) -> Any:
    """Return the figures of one part, or why there are none: the other part is measured all the same."""
    try:
        return measure(tiny)
    except (subprocess.TimeoutExpired, IndexError, ValueError, OSError) as error:
        return {"failed": f"{type(error).__name__}: {error}"[:300]}


def measure_ring(tiny: list[str]) -> dict[str, Any]:
    children = [child for rank in range(RANKS) for child in started("ring", str(rank), *tiny)]
    try:
        introduce(children)
    except OSError:
        for child in children:
            child.kill()
        raise
    measured = last_line(*children, limit=LIMITS["ring"])
    ms = measured.pop("ms")
    figures = {way: summary(values, 2) for way, values in ms.items()}
    adds = {
        f"exchange_adds_to_{way}": round(
            statistics.median(mine - other for mine, other in zip(ms["exchange"], ms[way], strict=True)), 2
        )
        for way in ("alone", "apart")
    }
    return {"ms_per_step": figures, **adds, **measured}


def measure_fit(tiny: list[str]) -> dict[str, Any]:
    measured = last_line(*started("fit", *tiny), limit=LIMITS["fit"])
    figures: dict[str, Any] = {}
    for kind, sides in measured.items():
        rates = sides["rows_per_second"]
        ratios = {
            f"{side}_over_memory": round(
                statistics.median(one / other for one, other in zip(values, rates["memory"], strict=True)), 3
            )
            for side, values in rates.items()
            if side != "memory"
        }
        figures[kind] = {
            "rows_per_second": {side: summary(values, 0) for side, values in rates.items()},
            **ratios,
            "start_ms": {side: summary(values, 1) for side, values in sides["start_ms"].items()},
            "xla": sides["xla"],
        }
    return figures


def started(*arguments: str) -> list[Any]:
    """Start one process of `benchmarks.gpu_side`; with a GPU, unless it is only a trial."""
    environment = rank_environment() | {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    environment["CUDA_VISIBLE_DEVICES"] = (
        "" if "cpu" in arguments else os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    )
    command = [sys.executable, "-m", "benchmarks.gpu_side", *arguments]
    pipe = subprocess.PIPE
    return [subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdin=pipe, stdout=pipe)]


def last_line(*children: Any, limit: float) -> Any:
    """Return the last line of the first process, which is JSON; None if it is empty."""
    try:
        lines = [child.communicate(timeout=limit)[0].strip().splitlines() for child in children]
    finally:
        for child in children:
            child.kill()
    return json.loads(lines[0][-1])


if __name__ == "__main__":
    main()
