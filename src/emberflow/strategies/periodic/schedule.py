"""When a worker synchronizes with the servers: every so many of its own steps, and at the end."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emberflow._plan import deadlines
from emberflow.config import check_count
from emberflow.errors import ModelError
from emberflow.strategies.periodic.client import PeriodicClient
from emberflow.strategies.periodic.combiners import Combiner, check_combiner, rule_of
from emberflow.strategies.periodic.value_layout import DTYPES, VariableSpec
from emberflow.strategies.transport.interface import Array

Values = list[Array]
Report = Callable[..., None]


class SyncSchedule:
    """Counts steps, and exchanges values with the servers when it is time.

    Args:
        client: The connections, not open yet.
        read: Returns the values of all variables.
        write: Sets them.
        interval: Steps between two exchanges.
        combiner: How the servers merge what is pushed.
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
        self._synced = 0
        self._reported = 0.0
        self._stale = 0
        values = read()
        self._shapes = [value.shape for value in values]
        flat = _flat(values)
        specs = [
            VariableSpec(
                size=value.size, dtype=str(value.dtype), rule=rule_of(combiner, is_statistic=is_statistic)
            )
            for value, is_statistic in zip(flat, are_statistics, strict=True)
        ]
        _check(specs)
        self._set(client.open(specs, flat, combiner))

    def step(self, count: int = 1, place: Callable[[], Any] | None = None) -> None:
        """Count steps; synchronize if it is time. `place` returns where this worker is in its rows."""
        self.steps += count
        if self.steps - self._synced >= self._interval:
            self.sync(place)

    def sync(self, place: Callable[[], Any] | None = None) -> None:
        """Push what was trained since the last exchange, if anything was; continue with the servers' values."""
        if self.steps == self._synced:
            return
        values, result = self._client.exchange(_flat(self._read()), place() if place else None)
        self._set(values)
        self._synced = self.steps
        self.pushes += result.counted
        self._stale = max(self._stale, result.stale)
        if time.monotonic() - self._reported >= deadlines.PROGRESS_INTERVAL:
            self._send_report()

    def server_values(self) -> tuple[Values, dict[str, Any]]:
        """Return the servers' values and where each worker was at its last push; changes nothing here."""
        values, places = self._client.pull(_flat(self._read()))
        return self._shaped(values), places

    def finish(self, place: Callable[[], Any] | None = None, *, waits: bool) -> list[int]:
        """Push the rest and disconnect; before that, if `waits`, wait for all others and use the final values.

        Returns:
            The ranks of workers that were lost.
        """
        self.sync(place)
        if self.pushes:
            self._send_report()
        lost: list[int] = []
        if waits:
            values, lost = self._client.finish(_flat(self._read()))
            self._set(values)
        self._client.leave()
        return lost

    def _send_report(self) -> None:
        self._reported = time.monotonic()
        self._report(step=self.steps, staleness=self._stale, pushes=self.pushes)
        self._stale = 0

    def _set(self, values: Sequence[Array]) -> None:
        self._write(self._shaped(values))

    def _shaped(self, values: Sequence[Array]) -> Values:
        return [value.reshape(shape) for value, shape in zip(values, self._shapes, strict=True)]


def _flat(values: Sequence[Array]) -> Values:
    return [np.ascontiguousarray(value).reshape(-1) for value in values]


def _check(specs: Sequence[VariableSpec]) -> None:
    wrong = sorted({spec.dtype for spec in specs} - set(DTYPES))
    if wrong or not specs:
        raise ModelError(
            f"Periodic averaging is for variables of {', '.join(DTYPES)}. Received: {wrong or 'no variables'}.",
            fix="Build the model first, and leave out variables of other dtypes.",
        )
