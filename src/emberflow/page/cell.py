"""A run as the cell of a notebook: its figures, its curves and its nodes, in plain HTML and SVG without scripts."""

import html
import math
from collections.abc import Iterable, Sequence

from emberflow._record.node_view import NodeView, Series, last_line
from emberflow._record.run_state import FAILED, RunState
from emberflow.page.cell_parts import ACTIVE, BAD, GOOD, QUIET, Coloured, cell, heading, note, table

WIDTH, HEIGHT = 380, 150
EDGE = 40  # for the figures of an axis
SHOWN_NODES = 10
SHOWN_CURVES = 2
SPEED = "rows_per_second"
COLOURS = {"succeeded": GOOD, "failed": BAD}
TRAINING, VALIDATION = ACTIVE, "#1971c2"


def cell_html(state: RunState) -> str:
    """Return what is known of a run as the content of a cell."""
    about = f"{state.run_id} · {state.t:.0f} s · {_nodes_in_words(state)}"
    head = heading(name_of(state), status_of(state), about)
    return cell(head, _bar(state), failure_html(state), curves_html(state), _nodes(state))


def name_of(state: RunState) -> str:
    """Return the name of your function, or what there is in its place."""
    return state.started.name if state.started else "run"


def status_of(state: RunState) -> Coloured:
    """Return how a run is, in its colour."""
    return Coloured(state.status, COLOURS.get(state.status, ACTIVE))


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


def failure_html(state: RunState) -> str:
    """Return why a run failed and what to do, if it did."""
    if state.failure is None:
        return ""
    problem = html.escape(state.failure.problem.partition("\n")[0])
    return (
        f'<p style="color:{COLOURS["failed"]};margin:4px 0"><b>{html.escape(state.failure.kind)}</b>: {problem}<br>'
        f"<b>What to do:</b> {html.escape(state.failure.fix)}</p>"
    )


def curves_html(state: RunState) -> str:
    """Return the curves of the first metrics, side by side."""
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


def _nodes(state: RunState) -> str:
    if not state.nodes:
        return ""
    order = sorted(state.nodes.values(), key=lambda node: (node.state not in FAILED, node.rank))
    more = len(order) - SHOWN_NODES
    names = ("node", "host", "state", "rows", "rows/s", "memory")
    return table(names, map(_row, order[:SHOWN_NODES])) + (note(f"and {more} more nodes") if more > 0 else "")


def _row(node: NodeView) -> tuple[str | Coloured, ...]:
    colour = BAD if node.state in FAILED else "inherit"
    memory = f"{(node.memory or node.memory_peak) / 1e9:.1f} GB" if node.memory_peak else ""
    speed = f"{node.rows_per_second:,.0f}" if node.rows_per_second else ""
    why = last_line(node.problem) or node.before
    state = Coloured(f"{node.state} {why}".strip(), colour)
    return f"{node.role} {node.rank}", node.host, state, f"{node.rows:,}", speed, memory
