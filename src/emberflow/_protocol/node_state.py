"""What a node is doing, for the driver that asks why other ranks wait for it."""

from enum import StrEnum


class NodeState(StrEnum):
    """What a node is doing; the values are what a person reads."""

    STARTING = "starting"
    TAKING_ROWS = "taking rows"
    WAITING_FOR_ROWS = "waiting for rows"
    WORKING = "working"

    @property
    def has_no_rows(self) -> bool:
        """Whether the node waits for its rows: then the others wait for it without a limit."""
        return self is not NodeState.WORKING
