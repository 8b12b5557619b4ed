"""How often a node tells the driver what it uses."""

from emberflow._plan import deadlines


def usage_interval(nodes: int) -> float:
    """Return the seconds between what one of so many nodes tells: the driver hears of fifty per second at most.

    >>> usage_interval(2), usage_interval(1000)
    (2.0, 20.0)
    """
    return deadlines.USAGE_INTERVAL * max(1.0, nodes / deadlines.USAGE_NODES)
