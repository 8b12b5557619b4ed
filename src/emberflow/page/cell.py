"""A run as the cell of a notebook: its figures, its curves and its nodes, in plain HTML and SVG without scripts."""

import html

from emberflow._record.node_view import NodeView, last_line
from emberflow._record.run_state import FAILED, RunState
from emberflow.page.cell_charts import curves_html
from emberflow.page.cell_parts import ACTIVE, BAD, GOOD, Coloured, cell, heading, in_bytes, note, table

SHOWN_NODES = 10
COLOURS = {"succeeded": GOOD, "failed": BAD}


def cell_html(state: RunState) -> str:
    """Return what is known of a run as the content of a cell."""
    about = f"{state.run_id} · {state.t:.0f} s · {_nodes_in_words(state)}"
    head = heading(name_of(state), status_of(state), about)
    waits = note(state.start.waiting) if state.start.waiting else ""
    return cell(head, _bar(state), waits, failure_html(state), curves_html(state), _nodes(state))


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
        f'<div style="height:4px;border-radius:2px;background:{ACTIVE};width:{share:.0%}"></div></div>'
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


def _nodes(state: RunState) -> str:
    if not state.nodes:
        return ""
    order = sorted(state.nodes.values(), key=lambda node: (node.state not in FAILED, node.rank))
    more = len(order) - SHOWN_NODES
    names = ("node", "host", "state", "rows", "rows/s", "memory")
    return table(names, map(_row, order[:SHOWN_NODES])) + (note(f"and {more} more nodes") if more > 0 else "")


def _row(node: NodeView) -> tuple[str | Coloured, ...]:
    colour = BAD if node.state in FAILED else "inherit"
    memory = in_bytes(node.memory or node.memory_peak) if node.memory_peak else ""
    speed = f"{node.rows_per_second:,.0f}" if node.rows_per_second else ""
    why = last_line(node.problem) or node.before
    state = Coloured(f"{node.state} {why}".strip(), colour)
    return f"{node.role} {node.rank}", node.host, state, f"{node.rows:,}", speed, memory
