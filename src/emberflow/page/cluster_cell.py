"""A cluster that stays up as the cell of a notebook: its curves, and what each node has taken and waits for."""

from collections.abc import Sequence

from emberflow._record.run_state import FAILED, RunState
from emberflow.page.cell import SHOWN_NODES, failure_html, name_of, status_of
from emberflow.page.cell_charts import curves_html
from emberflow.page.cell_parts import BAD, GOOD, Coloured, cell, heading, note, table
from emberflow.result import NodeStatus

NAMES = ("node", "host", "state", "rows taken", "waiting", "rows/s", "tasks held", "last line")
LINE_LENGTH = 80  # characters; a longer line would push the figures together


def cluster_html(state: RunState, nodes: Sequence[NodeStatus], *, is_up: bool) -> str:
    """Return what is known of a cluster now as the content of a cell.

    Args:
        state: What happened since it was started.
        nodes: How each node is now.
        is_up: Whether it can be fed.
    """
    status = Coloured("up", GOOD) if is_up else _over(state)
    taken = sum(node.rows_taken for node in nodes)
    about = f"{state.run_id} · {_count(len(nodes), 'node')} · {_count(taken, 'row')} taken"
    more = len(nodes) - SHOWN_NODES
    order = sorted(nodes, key=lambda node: (node.state not in FAILED, node.rank))
    return cell(
        heading(name_of(state), status, about),
        failure_html(state),
        curves_html(state),
        table(NAMES, map(_row, order[:SHOWN_NODES])) if nodes else "",
        note(f"and {more} more nodes") if more > 0 else "",
    )


def _over(state: RunState) -> Coloured:
    status = status_of(state)
    return status if state.status == "failed" else Coloured("stopped", status.colour)


def _row(node: NodeStatus) -> tuple[str | Coloured, ...]:
    line = " ".join(node.log_tail[-1:])
    return (
        f"{node.role} {node.rank}",
        node.host,
        Coloured(node.state, BAD if node.state in FAILED else "inherit"),
        f"{node.rows_taken:,}",
        f"{node.rows_waiting:,}",
        f"{node.rows_per_second:,.0f}",
        str(node.tasks_held or ""),
        line if len(line) <= LINE_LENGTH else f"{line[:LINE_LENGTH]} ...",
    )


def _count(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> _count(1, "node"), _count(1200, "row")
    ('1 node', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
