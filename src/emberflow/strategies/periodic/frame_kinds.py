"""The frames between workers and servers of periodic averaging."""

import enum


class FrameKind(enum.IntEnum):
    """The kind of a frame. All but the last two go from a worker to a server, which answers each."""

    OPEN = 1
    """This worker's rank, attempt and layout; the chief's has the initial values."""
    PUSH = 2
    """What was trained since the last pull."""
    PULL = 3
    """Return the values."""
    FINISH = 4
    """Return the values once all other workers are done, or say which are not."""
    LEAVE = 5
    """This worker is done."""
    ANSWER = 6
    """Server to worker: the result, usually with the server's values."""
    REFUSAL = 7
    """Server to worker: problem and fix of an error."""


def purpose_of(server: int) -> str:
    """Return the purpose of a connection to this server, for the handshake."""
    return f"periodic averaging, ps {server}"
