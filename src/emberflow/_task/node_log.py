"""What a node prints: copied to the executor's log, forwarded to the driver, the last lines kept for errors."""

import os
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from emberflow._plan.plan import LogCopy

# What TensorFlow prints before it can be told to be quiet. On a host without GPUs it is no error that there are none.
NOISE = re.compile(
    rb"I0000 00:00:|WARNING: All log messages before absl"
    rb"|[WE]0000 .*(cuda_platform|cuInit|cuda_dnn|cuda_fft|cuda_blas|computation_placer)"
)
TAIL_LINES = 40  # enough for a traceback, with which the log of a failed node ends
LINE_LIMIT = 8192  # bytes; a program may print for ever without a line end
STANDARD_ERROR = 2


class NodeLog:
    """The output of one node and of its own children.

    Args:
        copy: What of it goes to standard error of this process, which is the executor's log.
        forward: Called with whole lines, TensorFlow's start-up noise left out.
    """

    def __init__(self, copy: LogCopy = "all", forward: Callable[[str], object] | None = None) -> None:
        self._copy = copy
        self._forward = forward
        self._tail: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._partial = b""

    def add(self, data: bytes) -> None:
        """Take in what was printed."""
        if self._copy == "all":
            _write(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LINE_LIMIT:
            lines.append(self._partial)
            self._partial = b""
        self._add_lines(lines)

    def end(self) -> None:
        """Take in the last line, which may have no line end."""
        if self._partial:
            self._add_lines([self._partial])
            self._partial = b""

    def tail(self, *, with_noise: bool) -> str:
        """Return the last lines."""
        lines = [*self._tail, self._partial] if self._partial else list(self._tail)
        kept = lines if with_noise else without_noise(lines)
        return b"\n".join(kept).decode(errors="replace")

    def _add_lines(self, lines: list[bytes]) -> None:
        self._tail.extend(line[:LINE_LIMIT] for line in lines[-TAIL_LINES:])
        if shown := without_noise(lines):
            text = b"\n".join(shown)
            if self._copy == "no_noise":
                _write(text + b"\n")
            if self._forward is not None:
                self._forward(text.decode(errors="replace"))


def without_noise(lines: list[bytes]) -> list[bytes]:
    """Return the lines that are not TensorFlow's start-up noise."""
    return [line for line in lines if not NOISE.match(line)]


def _write(data: bytes) -> None:
    with suppress(OSError):
        os.write(STANDARD_ERROR, data)
