"""A run as the cell of a notebook: its figures, its curves and its nodes, in plain HTML and SVG without scripts."""

import html
import math
from collections.abc import Iterable, Sequence

from emberflow._record.node_view import NodeView, Series, last_line
from emberflow._record.run_state import FAILED, RunState

WIDTH, HEIGHT = 380, 150
EDGE = 40  # for the figures of an axis
SHOWN_NODES = 10
SHOWN_CURVES = 2
SPEED = "rows_per_second"
COLOURS = {"succeeded": "#2b8a3e", "failed": "#c92a2a"}
TRAINING, VALIDATION = "#e0520a", "#1971c2"
QUIET = "color:#888;font-size:12px"


def cell_html(state: RunState) -> str:
    """Return what is known of a run as the content of a cell."""
    name = html.escape(state.started.name if state.started else "run")
    colour = COLOURS.get(state.status, TRAINING)
    head = (
        f'<b style="font-size:15px">{name}</b> <span style="color:{colour};font-weight:600">● {state.status}</span> '
        f'<span style="{QUIET}">{state.run_id} · {state.t:.0f} s · {_nodes_in_words(state)}</span>'
    )
    parts = [head, _bar(state), _failure(state), _curves(state), _table(state)]
    return f'<div style="font-family:system-ui,sans-serif;max-width:820px">{"".join(parts)}</div>'


def _nodes_in_words(state: RunState) -> str:
    up = sum(node.state in ("running", "returned") for node in state.nodes.values())
    again = f", attempt {state.attempt + 1}" if state.attempt else ""
    return f"{up} of {len(state.nodes)} nodes up{again}"


def _bar(state: RunState) -> str:
    share = 1.0 if state.status == "succeeded" else min(state.progress or 0.0, 1.0)
    return (
        '<div style="height:4px;border-radius:2px;background:#8883;margin:6px 0 10px">'
        f'<div style="height:4px;border-radius:2px;background:{TRAINING};width:{share:.0%}"></div></div>'
    )


def _failure(state: RunState) -> str:
    if state.failure is None:
        return ""
    problem = html.escape(state.failure.problem.partition("\n")[0])
    return (
        f'<p style="color:{COLOURS["failed"]};margin:4px 0"><b>{html.escape(state.failure.kind)}</b>: {problem}<br>'
        f"<b>What to do:</b> {html.escape(state.failure.fix)}</p>"
    )


def _curves(state: RunState) -> str:
    names = dict.fromkeys(series.name.removeprefix("val_") for series in state.series.values())
    shown = [name for name in names if name != SPEED][:SHOWN_CURVES]
    return f'<div style="display:flex;flex-wrap:wrap;gap:16px">{"".join(_chart(state, name) for name in shown)}</div>'


def _chart(state: RunState, name: str) -> str:
    """Return one metric of the chief, of all attempts, with its validation."""
    own = [each for each in state.series.values() if each.rank == 0 and each.name in (name, f"val_{name}")]
    values = [point[4] for each in own for point in each.points if math.isfinite(point[4])]
    if not values:
        return ""
    times = [point[2] for each in own for point in each.points]
    box = (min(times), max(times), min(values), max(values))
    lines = "".join(_line(each, box, VALIDATION if each.name != name else TRAINING) for each in own)
    last = {each.name: each.points[-1][4] for each in own}
    legend = "  ".join(f"{key} {value:.4g}" for key, value in last.items())
    labels = "".join(
        f'<text x="{EDGE - 6}" y="{y}" text-anchor="end" font-size="10" fill="#888">{value:.3g}</text>'
        for y, value in ((12, box[3]), (HEIGHT - 4, box[2]))
    )
    return (
        f'<div><div style="font-size:12px"><b>{html.escape(name)}</b> <span style="{QUIET}">'
        f'{html.escape(legend)}</span></div><svg width="{WIDTH}" height="{HEIGHT}" role="img">'
        f'<path d="M{EDGE} 4V{HEIGHT - 4}H{WIDTH}" fill="none" stroke="#8886"/>{labels}{lines}</svg></div>'
    )


def _line(series: Series, box: tuple[float, float, float, float], colour: str) -> str:
    places = _places(series.points[:: max(len(series.points) // WIDTH, 1)], box)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _places(
    points: Sequence[tuple[int, int | None, float, float | None, float]],
    box: tuple[float, float, float, float],
) -> Iterable[tuple[float, float]]:
    first, last, low, high = box
    for _, _, t, _, value in points:
        if math.isfinite(value):
            x = EDGE + (t - first) / ((last - first) or 1) * (WIDTH - EDGE - 4)
            yield x, HEIGHT - 8 - (value - low) / ((high - low) or 1) * (HEIGHT - 16)


def _table(state: RunState) -> str:
    if not state.nodes:
        return ""
    order = sorted(state.nodes.values(), key=lambda node: (node.state not in FAILED, node.rank))
    rows = "".join(map(_row, order[:SHOWN_NODES]))
    more = len(order) - SHOWN_NODES
    note = f'<p style="{QUIET}">and {more} more nodes</p>' if more > 0 else ""
    names = ("node", "host", "state", "rows", "rows/s", "memory")
    head = "".join(f'<th style="text-align:left;{QUIET};font-weight:500">{name}</th>' for name in names)
    return f'<table style="margin-top:8px;font-size:13px"><tr>{head}</tr>{rows}</table>{note}'


def _row(node: NodeView) -> str:
    colour = COLOURS["failed"] if node.state in FAILED else "inherit"
    memory = f"{(node.memory or node.memory_peak) / 1e9:.1f} GB" if node.memory_peak else ""
    speed = f"{node.rows_per_second:,.0f}" if node.rows_per_second else ""
    why = html.escape(last_line(node.problem) or node.before)
    state = f'<span style="color:{colour}">{node.state} {why}</span>'
    cells = (f"{node.role} {node.rank}", html.escape(node.host), state, f"{node.rows:,}", speed, memory)
    return "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"
