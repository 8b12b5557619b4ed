"""Recorded runs in one line each, and two runs side by side."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emberflow._plan import deadlines
from emberflow._record.metric_values import SPEED, best_values, last_values, losses_first
from emberflow._record.run_state import RunState


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
        metrics: The last value of each; of parallel tasks the best of their last values.
        best_ranks: Of parallel tasks: which one has the best value of each metric.
    """

    run_id: str
    name: str
    at: float
    status: str
    seconds: float
    nodes: int
    attempts: int
    metrics: Mapping[str, float]
    best_ranks: Mapping[str, int]


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
    best = best_values(state.series.values()) if state.is_parallel else []
    last = {each.name: each.value for each in best} if best else last_values(state.series.values())
    return RunSummary(
        run_id=state.run_id,
        name=state.started.name if state.started else "?",
        at=at,
        status="cut" if is_cut else state.status,
        seconds=state.t,
        nodes=len(state.nodes),
        attempts=state.attempt + 1,
        metrics=last,
        best_ranks={each.name: each.rank for each in best},
    )


def metrics_in_words(run: RunSummary, most: int = 4) -> str:
    """Return the metrics that people look for first as text; of parallel tasks with the task that is the best."""
    shown = [name for name in losses_first(run.metrics) if name != SPEED][:most]
    return "  ".join(f"{name} {_value(run, name, 4)}" for name in shown)


def differences(one: RunState, other: RunState) -> list[tuple[str, str, str]]:
    """Return what two runs do not have in common: what it is, the first's, the second's.

    Options, plan and versions are listed where they differ; times and metrics in any case.
    """
    first, second = one.head(), other.head()
    changed = [
        *_changed(_basics(one), _basics(other)),
        *_changed(_choices(first), _choices(second), absent="default"),  # a record has what was chosen
        *_changed(first["plan"], second["plan"]),
        *_changed(_versions(first), _versions(second)),
    ]
    return [*changed, *_measured(one, other)]


def _changed(
    first: Mapping[str, Any], second: Mapping[str, Any], absent: str = ""
) -> list[tuple[str, str, str]]:
    rows = [
        (name, str(first.get(name, absent)), str(second.get(name, absent)))
        for name in dict.fromkeys([*first, *second])
    ]
    return [row for row in rows if row[1] != row[2]]


def _basics(state: RunState) -> dict[str, Any]:
    return {"function": state.started.name if state.started else "", "nodes": len(state.nodes)}


def _choices(head: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in head["options"].items() if name != "record"}


def _versions(head: Mapping[str, Any]) -> dict[str, str]:
    return {f"version of {name}": version for name, version in head["versions"].items()}


def _measured(one: RunState, other: RunState) -> list[tuple[str, str, str]]:
    first, second = summary_of(one), summary_of(other)
    rows = [
        ("state", first.status, second.status),
        ("seconds", f"{first.seconds:.1f}", f"{second.seconds:.1f}"),
        ("attempts", str(first.attempts), str(second.attempts)),
    ]
    names = dict.fromkeys([*first.metrics, *second.metrics])
    return rows + [(name, _value(first, name, 5), _value(second, name, 5)) for name in names]


def _value(run: RunSummary, name: str, digits: int) -> str:
    if name not in run.metrics:
        return ""
    task = f" (best: task {run.best_ranks[name]})" if name in run.best_ranks else ""
    return f"{run.metrics[name]:.{digits}g}{task}"
