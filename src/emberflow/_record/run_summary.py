"""Recorded runs in one line each, and two runs side by side."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emberflow._plan import deadlines
from emberflow._record.run_state import RunState

SPEED = "rows_per_second"


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run in one line.

    Attributes:
        run_id: Its name.
        name: What your function is called.
        at: When it began, in seconds since 1970.
        status: "starting", "running", "succeeded", "failed"; or "cut", where the record ends without an end.
        seconds: How long it took, or has taken so far.
        nodes: How many nodes it has.
        attempts: How often all nodes were started.
        metrics: The last value of each.
    """

    run_id: str
    name: str
    at: float
    status: str
    seconds: float
    nodes: int
    attempts: int
    metrics: Mapping[str, float]


def summary_of(state: RunState, now: float | None = None) -> RunSummary:
    """Return a run in one line.

    Args:
        state: The run.
        now: The wall clock; the present if left out.
    """
    at = state.started.at if state.started else 0.0
    age = (time.time() if now is None else now) - (at + state.t)
    # A driver that is alive writes at least every `RECORD_SIGN_OF_LIFE`.
    is_cut = not state.is_over and age > 2 * deadlines.RECORD_SIGN_OF_LIFE
    return RunSummary(
        run_id=state.run_id,
        name=state.started.name if state.started else "?",
        at=at,
        status="cut" if is_cut else state.status,
        seconds=state.t,
        nodes=len(state.nodes),
        attempts=state.attempt + 1,
        metrics=state.last_metrics(),
    )


def metrics_in_words(metrics: Mapping[str, float], most: int = 4) -> str:
    """Return the first metrics as text.

    >>> metrics_in_words({"loss": 0.12345, "accuracy": 0.98, "rows_per_second": 12000.0})
    'loss 0.1235  accuracy 0.98'
    """
    shown = [(name, value) for name, value in metrics.items() if name != SPEED]
    return "  ".join(f"{name} {value:.4g}" for name, value in shown[:most])


def differences(one: RunState, other: RunState) -> list[tuple[str, str, str]]:
    """Return what two runs do not have in common: what it is, the first's, the second's.

    Options, plan and versions are listed where they differ; times and metrics in any case.
    """
    first, second = _facts(one), _facts(other)
    names = [*first, *(name for name in second if name not in first)]
    rows = [(name, first.get(name, ""), second.get(name, "")) for name in names]
    changed = [row for row in rows if row[1] != row[2]]
    return [*changed, *_measured(one, other)]


def _facts(state: RunState) -> dict[str, str]:
    started = state.started
    found: dict[str, Any] = {"function": started.name if started else "", "nodes": len(state.nodes)}
    if started:
        found |= started.options
    found |= state.plan
    found |= {
        f"version of {name}": version for name, version in (started.versions if started else {}).items()
    }
    return {name: str(value) for name, value in found.items()}


def _measured(one: RunState, other: RunState) -> list[tuple[str, str, str]]:
    first, second = summary_of(one), summary_of(other)
    rows = [
        ("state", first.status, second.status),
        ("seconds", f"{first.seconds:.1f}", f"{second.seconds:.1f}"),
        ("attempts", str(first.attempts), str(second.attempts)),
    ]
    names = dict.fromkeys([*first.metrics, *second.metrics])
    return rows + [(name, _last(first, name), _last(second, name)) for name in names]


def _last(run: RunSummary, name: str) -> str:
    return f"{run.metrics[name]:.5g}" if name in run.metrics else ""
