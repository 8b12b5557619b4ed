"""The curves of a notebook's cell: one chart per metric, training and validation, with a mark for each restart."""

import html
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from emberflow._record.metric_values import SPEED, best_values, last_values, losses_first
from emberflow._record.node_view import Series
from emberflow._record.run_state import RunState
from emberflow.page.cell_parts import ACTIVE, QUIET

WIDTH, HEIGHT = 380, 164
LEFT, BOTTOM = 58, 18  # room for the figures of the axes
SHOWN_CURVES = 2
SHOWN_TASKS = 16
TRAINING, VALIDATION = ACTIVE, "#1971c2"
_FIGURE = 'font-size="10" fill="#888"'


class _Box(NamedTuple):
    """The part of time and values that a chart shows."""

    first: float
    last: float
    low: float
    high: float

    def x(self, t: float) -> float:
        return LEFT + 4 + (t - self.first) / ((self.last - self.first) or 1) * (WIDTH - LEFT - 10)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return HEIGHT - BOTTOM - 6 - share * (HEIGHT - BOTTOM - 14)


def curves_html(state: RunState) -> str:
    """Return the curves of the metrics that people look for first, side by side."""
    names = dict.fromkeys(series.name.removeprefix("val_") for series in state.series.values())
    shown = [name for name in losses_first(names) if name != SPEED][:SHOWN_CURVES]
    return f'<div style="display:flex;flex-wrap:wrap;gap:16px">{"".join(_chart(state, name) for name in shown)}</div>'


def _chart(state: RunState, name: str) -> str:
    """Return one metric: of the chief in all attempts, or of independent tasks; with its validation."""
    ranks = range(SHOWN_TASKS) if state.is_parallel else range(1)
    own = [
        each for each in state.series.values() if each.name in (name, f"val_{name}") and each.rank in ranks
    ]
    points = [point for each in own for point in each.points]
    values = [point[4] for point in points if math.isfinite(point[4])]
    head = f'<div style="font-size:12px"><b>{html.escape(name)}</b>{_legend(state, name)}</div>'
    if not values:
        return f"<div>{head}</div>"
    times = [point[2] for point in points]
    box = _Box(min(times), max(times), min(values), max(values))
    main = {each.rank for each in best_values(own)} if state.is_parallel else {0}
    lines = "".join(
        _line(each, box, _colour(each.name), opacity=1.0 if each.rank in main else 0.4) for each in own
    )
    return (
        f'<div>{head}<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{html.escape(name)}">'
        f"{_axes(box)}{_restarts(state, box)}{lines}</svg></div>"
    )


def _legend(state: RunState, name: str) -> str:
    """Return the last values, each in the colour of its curve; of tasks the best one."""
    if state.is_parallel:
        last = {
            each.name: f"{each.value:.4g} (best: task {each.rank})"
            for each in best_values(state.series.values())
        }
    else:
        last = {each: f"{value:.4g}" for each, value in last_values(state.series.values()).items()}
    keys = [(each, last[each]) for each in (name, f"val_{name}") if each in last]
    return "".join(
        f' <span style="color:{_colour(each)}">●</span> <span style="{QUIET}">'
        f"{'validation' if each != name else 'training'} {html.escape(value)}</span>"
        for each, value in keys
    )


def _colour(name: str) -> str:
    return VALIDATION if name.startswith("val_") else TRAINING


def _axes(box: _Box) -> str:
    floor, digits = HEIGHT - BOTTOM, 0 if box.last - box.first >= 10 else 1
    values = [(box.y(box.high), box.high), (box.y(box.low), box.low)] if box.high > box.low else []
    figures = "".join(
        f'<text x="{LEFT - 6}" y="{y + 3:.0f}" text-anchor="end" {_FIGURE}>{value:.3g}</text>'
        for y, value in values or [(box.y(box.low), box.low)]
    )
    return (
        f'<path d="M{LEFT} 4V{floor}H{WIDTH}" fill="none" stroke="#8886"/>{figures}'
        f'<text x="{LEFT}" y="{HEIGHT - 5}" {_FIGURE}>{box.first:.{digits}f} s</text>'
        f'<text x="{WIDTH - 2}" y="{HEIGHT - 5}" text-anchor="end" {_FIGURE}>{box.last:.{digits}f} s</text>'
    )


def _restarts(state: RunState, box: _Box) -> str:
    """Return a line where all nodes started again."""
    times = [mark["t"] for mark in state.marks if mark["kind"] == "restart"]
    return "".join(
        f'<path d="M{box.x(t):.1f} 4V{HEIGHT - BOTTOM}" stroke="#888" stroke-dasharray="3 3"/>'
        f'<text x="{box.x(t) + 4:.1f}" y="12" {_FIGURE}>restart</text>'
        for t in times
        if box.first <= t <= box.last
    )


def _line(series: Series, box: _Box, colour: str, opacity: float) -> str:
    """Return a curve; of one point a dot, since a line of one point is not drawn."""
    places = list(_places(series.points[:: max(len(series.points) // WIDTH, 1)], box))
    if len(places) == 1:
        ((x, y),) = places
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" opacity="{opacity}"/>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6" opacity="{opacity}"/>'
    )


def _places(
    points: Sequence[tuple[int, int | None, float, float | None, float]], box: _Box
) -> Iterable[tuple[float, float]]:
    for _, _, t, _, value in points:
        if math.isfinite(value):
            yield box.x(t), box.y(value)
