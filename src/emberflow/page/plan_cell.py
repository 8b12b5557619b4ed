"""A plan as the cell of a notebook: its nodes, and what holds for all of them."""

from collections.abc import Mapping, Sequence

from emberflow.page.cell_parts import ACTIVE, Coloured, cell, heading, note, table

NAMES = ("node", "what it does", "share of the rows", "GPUs")


def plan_html(name: str, nodes: Sequence[Sequence[str]], facts: Mapping[str, str], *, shown: int) -> str:
    """Return a plan as the content of a cell.

    Args:
        name: Your function.
        nodes: Name, work, share of the rows and GPUs of each node.
        facts: What holds for all nodes.
        shown: How many nodes are listed.
    """
    about = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} · nothing has started"
    used = [place for place in range(len(NAMES)) if any(node[place] for node in nodes)]
    rows = [[node[place] for place in used] for node in nodes[:shown]]
    more = len(nodes) - shown
    return cell(
        heading(name, Coloured("planned", ACTIVE), about),
        table([NAMES[place] for place in used], rows),
        note(f"and {more} more nodes") if more > 0 else "",
        table(("what", "value"), facts.items()),
    )
