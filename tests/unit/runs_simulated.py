"""Runs that never happened, event by event: for the tests of the record, the page and the report."""

import math
from collections.abc import Iterator
from typing import Any

from emberflow._record import events as e

GIB = 1 << 30
TRACEBACK = """Traceback (most recent call last):
  File "/home/me/train.py", line 14, in train
    raise ValueError("loss is nan <b>here</b>")
ValueError: loss is nan <b>here</b>"""


def started(run_id: str = "0a1b2c3d", **more: Any) -> e.RunStarted:
    known: dict[str, Any] = {
        "t": 0.0,
        "run_id": run_id,
        "kind": "run",
        "name": "train",
        "at": 1_760_000_000.0,
        "options": {"workers": 2},
        "versions": {"emberflow": "0.1", "spark": "4.3.0", "tensorflow": "2.21"},
    }
    return e.RunStarted(**(known | more))


def planned(nodes: int, t: float = 0.4) -> e.RunPlanned:
    each = [
        e.PlannedNode(rank=rank, role="worker" if rank else "chief", index=max(rank - 1, 0))
        for rank in range(nodes)
    ]
    return e.RunPlanned(t=t, nodes=tuple(each), plan={"strategy": "data_parallel", "transport": "ring"})


def start(nodes: int, attempt: int = 0, t: float = 0.5) -> Iterator[e.Event]:
    """Yield an attempt from its begin to the begin of your function."""
    if not attempt:
        yield e.SlotsHeld(t=t)
    yield e.AttemptStarted(t=t, attempt=attempt)
    for rank in range(nodes):
        yield e.NodeJoined(t=t + 1 + rank / nodes, rank=rank, host=f"host-{rank % 40}")
    for rank in range(nodes):
        yield e.NodeReady(t=t + 2 + rank / nodes, rank=rank)
        yield e.RowsFed(t=t + 3, rank=rank, rows=60_000, rows_per_second=21_000.0, waiting_for="source")
    yield e.ClusterFormed(t=t + 3.5)


def training(nodes: int, steps: range, t: float, every: int = 10) -> Iterator[e.Event]:
    """Yield what the nodes tell while they train; 100 steps are an epoch."""
    for step in steps:
        t += 0.1
        loss = 2.2 * math.exp(-step / 160) + 0.04 * math.sin(step / 3) + 0.12
        values = {"loss": loss, "accuracy": 1 - loss / 2.6, "epoch": 1.0 + step // 100}
        values |= {"progress": min(step / 600, 1.0), "rows_per_second": 41_000 + 900 * math.sin(step)}
        if step % 100 == 99:
            values |= {"val_loss": loss + 0.07, "val_accuracy": 0.97 - loss / 2.6}
            yield e.LinesPrinted(t=t, rank=0, text=f"epoch {step // 100 + 1} of 6  loss {loss:.4f}")
        yield e.MetricsReported(t=t, rank=0, step=step, values=values)
        if step % every == 0:
            for rank in range(nodes):
                memory = int((1.4 + 0.1 * math.sin(rank + step / 40)) * GIB)
                yield e.NodeUsed(t=t, rank=rank, memory=memory, cpus=0.9 + (rank % 3) / 10)
                speed, side = 20_500.0 + rank % 7 * 90, "sink" if rank % 2 else "neither"
                yield e.RowsFed(
                    t=t,
                    rank=rank,
                    rows=60_000 + step * 128,
                    rows_per_second=speed,
                    waiting_for=side,
                    is_training=True,
                )


def succeeded(run_id: str = "0a1b2c3d", nodes: int = 2, steps: int = 600) -> Iterator[e.Event]:
    """Yield a run that succeeds."""
    yield started(run_id, options={"workers": nodes})
    yield planned(nodes)
    yield from start(nodes)
    yield e.LinesPrinted(t=4.2, rank=0, text="a line with <script>document.title='gotcha'</script>")
    yield from training(nodes, range(steps), t=4.2)
    for rank in range(nodes):
        yield e.NodeEnded(t=70.0, rank=rank, ending="returned", seconds=61.0)
    yield e.RunEnded(t=70.2, value="{'loss': 0.17, 'accuracy': 0.935}")


def restarted(run_id: str = "5e5e5e5e", nodes: int = 2) -> Iterator[e.Event]:
    """Yield a run whose worker is killed; it starts again."""
    yield started(run_id, options={"workers": nodes, "max_restarts": 1})
    yield planned(nodes)
    yield from start(nodes)
    yield from training(nodes, range(250), t=4.2)
    problem = "its process was killed by SIGKILL"
    yield e.NodeEnded(t=29.5, rank=1, ending="lost", problem=problem, host="host-1")
    yield e.AttemptFailed(
        t=31.0, attempt=0, problem=f"Worker 1 on host-1 was lost: {problem}", rank=1, is_restarted=True
    )
    yield from start(nodes, attempt=1, t=31.5)
    yield from training(nodes, range(200, 420), t=35.5)


def failed(run_id: str = "bad0bad0", nodes: int = 2) -> Iterator[e.Event]:
    """Yield a run whose function raises."""
    yield started(run_id)
    yield planned(nodes)
    yield from start(nodes)
    yield from training(nodes, range(40), t=4.2)
    yield e.LinesPrinted(t=8.0, rank=1, text="step 39  loss nan")
    yield e.NodeEnded(t=8.3, rank=1, ending="raised", problem=TRACEBACK, host="host-1", seconds=4.1)
    yield e.RunEnded(
        t=8.9,
        failure=e.RunFailure(
            kind="NodeFailedError",
            problem=f"Worker 1 on host-1 failed. Your function raised:\n{TRACEBACK}",
            fix="Correct the function; run it with workers=1 to debug it alone.",
            traceback=TRACEBACK,
            rank=1,
            log_tail="step 39  loss nan",
        ),
    )
