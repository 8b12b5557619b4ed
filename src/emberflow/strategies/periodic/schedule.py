"""When a worker meets the server: every so many of its own steps, and for what is left at the end."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emberflow._plan import deadlines
from emberflow.config import check_count
from emberflow.errors import ModelError
from emberflow.strategies.periodic.client import PeriodicClient
from emberflow.strategies.periodic.combiners import Combiner, check_combiner, rule_of
from emberflow.strategies.periodic.value_layout import DTYPES, Spec
from emberflow.strategies.transport.interface import Array

Values = list[Array]
Report = Callable[..., None]


class Meeting:
    """Counts steps, and exchanges values with the server when it is time.

    Args:
        client: The connections, not opened yet.
        read: Returns the values of all variables.
        write: Sets them.
        interval: Steps between two meetings.
        combiner: How the server takes in what is pushed.
        are_statistics: For each variable, whether it is a moving statistic, which is always averaged.
        report: Sends numbers to the driver.
    """

    def __init__(
        self,
        client: PeriodicClient,
        read: Callable[[], Sequence[Array]],
        write: Callable[[Sequence[Array]], None],
        *,
        interval: int,
        combiner: Combiner,
        are_statistics: Sequence[bool],
        report: Report,
    ) -> None:
        check_count("interval", interval)
        check_combiner(combiner)
        self.steps = 0
        self.pushes = 0
        self._client = client
        self._read = read
        self._write = write
        self._interval = interval
        self._report = report
        self._met = 0
        self._said = 0.0
        self._stale = 0
        values = read()
        self._shapes = [value.shape for value in values]
        flat = _flat(values)
        specs = [
            Spec(size=value.size, dtype=str(value.dtype), rule=rule_of(combiner, is_statistic=is_statistic))
            for value, is_statistic in zip(flat, are_statistics, strict=True)
        ]
        _check(specs)
        self._take(client.open(specs, flat, combiner))

    def step(self, count: int = 1, place: Callable[[], Any] | None = None) -> None:
        """Count steps; meet if it is time. `place` says where in the rows this worker stands."""
        self.steps += count
        if self.steps - self._met >= self._interval:
            self.meet(place)

    def meet(self, place: Callable[[], Any] | None = None) -> None:
        """Push what was trained since the last meeting, if anything was, and take the server's values."""
        if self.steps == self._met:
            return
        values, came = self._client.exchange(_flat(self._read()), place() if place else None)
        self._take(values)
        self._met = self.steps
        self.pushes += came.counted
        self._stale = max(self._stale, came.stale)
        if time.monotonic() - self._said >= deadlines.PROGRESS_INTERVAL:
            self._say()

    def centre(self) -> tuple[Values, dict[str, Any]]:
        """Return the server's values and where each worker stood when it last pushed; changes nothing here."""
        values, places = self._client.pull(_flat(self._read()))
        return self._shaped(values), places

    def finish(self, place: Callable[[], Any] | None = None, *, waits: bool) -> list[int]:
        """Push what is left, and leave; first, if asked to, wait for all others and take what came of it.

        Returns:
            The ranks of workers that were lost on the way.
        """
        self.meet(place)
        if self.pushes:
            self._say()
        missing: list[int] = []
        if waits:
            values, missing = self._client.finish(_flat(self._read()))
            self._take(values)
        self._client.leave()
        return missing

    def _say(self) -> None:
        self._said = time.monotonic()
        self._report(step=self.steps, staleness=self._stale, pushes=self.pushes)
        self._stale = 0

    def _take(self, values: Sequence[Array]) -> None:
        self._write(self._shaped(values))

    def _shaped(self, values: Sequence[Array]) -> Values:
        return [value.reshape(shape) for value, shape in zip(values, self._shapes, strict=True)]


def _flat(values: Sequence[Array]) -> Values:
    return [np.ascontiguousarray(value).reshape(-1) for value in values]


def _check(specs: Sequence[Spec]) -> None:
    wrong = sorted({spec.dtype for spec in specs} - set(DTYPES))
    if wrong or not specs:
        raise ModelError(
            f"Periodic averaging is for variables of {', '.join(DTYPES)}. Received: {wrong or 'no variables'}.",
            fix="Build the model first, and leave out variables of other dtypes.",
        )
