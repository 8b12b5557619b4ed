"""The result of a run: the chief's value, and one report per node."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from emberflow.errors import ConfigError


class RunView(Protocol):
    """A run that is over, for people to look at."""

    def write(self, path: str) -> None:
        """Write its report."""

    def cell(self) -> str:
        """Return it as the content of a notebook's cell."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One call of ``ctx.report`` on one node.

    Attributes:
        rank: The node that reported.
        step: The step that was passed, or None.
        values: The numbers by name.
        seconds: The time of the report, in seconds since that node called your function.
        attempt: The attempt of the run, from 0.
    """

    rank: int
    step: int | None
    values: dict[str, float]
    seconds: float
    attempt: int = 0


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one node reports at its end.

    Attributes:
        rank: The node's global number.
        role: chief, worker, ps or evaluator.
        index: Its number within its role.
        host: The host that it ran on, as Spark names it.
        devices: The accelerators that it can use; empty on a CPU node.
        ending: "returned"; or "lost", if the run continued without it.
        seconds: How long your function ran there.
        log_tail: The last lines of its output.
        value: What your function returned there, if it was small and could be pickled.
        feed: If it had data: ``rows``, ``bytes``, ``seconds`` and ``rows_per_second`` of the transfer to this node,
            and the slower side (``waiting_for``: the ``source`` is Spark or the files, the ``sink`` is the local
            disk, or the training with ``cache=False``); under ``datasets``, by name, the same for what your
            function read, where the ``sink`` is the training.
        gpus: Name, memory and peak use of its own GPUs, if the NVIDIA library is installed.
    """

    rank: int
    role: str
    index: int
    host: str
    devices: tuple[str, ...] = ()
    ending: str = "returned"
    seconds: float = 0.0
    log_tail: str = ""
    value: Any = None
    feed: dict[str, Any] = field(default_factory=dict)
    gpus: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    """What ``emberflow.run`` returns.

    Attributes:
        value: What your function returned on the chief.
        reports: One per node, in rank order.
        metrics: The calls of ``ctx.report`` in all attempts, in order of arrival. Of more than 2,000 calls of one
            node with the same names an even selection is kept, with the first and the last.
        seconds: How long the run took on the driver, from start to end.
        attempts: How many times the nodes were started.
        tensorboard_url: The address of TensorBoard during the run, or None.
        record: The folder of its record, or None; see ``emberflow runs``.
    """

    value: Any
    reports: tuple[Report, ...]
    metrics: tuple[Metric, ...] = field(default=(), repr=False)
    seconds: float
    attempts: int = 1
    tensorboard_url: str | None = None
    record: str | None = None
    _report: "RunView | None" = field(default=None, repr=False, compare=False)

    def report(self, path: str) -> None:
        """Write what happened as one HTML file: the page of the run, to send around and to keep.

        Args:
            path: A path on this machine, or a URL; what is there is replaced.
        """
        if self._report is None:
            raise ConfigError(
                "A report needs a result that a run has returned. Received: one that was made by hand.",
                fix="Call report() on what ef.run returns.",
            )
        self._report.write(path)

    def _repr_html_(self) -> str | None:
        """Show the run in notebooks: its curves and its nodes."""
        return self._report.cell() if self._report is not None else None


@dataclass(frozen=True, kw_only=True)
class FeedResult:
    """What ``cluster.train`` returns.

    Attributes:
        rows: Rows that the nodes were given, each counted once, whatever the number of epochs.
        seconds: How long it took on the driver, until the nodes were done with them.
    """

    rows: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """One node of a live cluster at one moment.

    Attributes:
        rank: Its global number.
        role: chief, worker, ps or evaluator.
        index: Its number within its role.
        host: Where it runs.
        state: "waiting" for its task, "starting", "up", "returned", or how it ended.
        log_tail: The last lines that it printed.
        rows_taken: Rows that your function has taken so far; of rounds those of complete epochs.
        rows_waiting: Rows that are on the node for it to take.
        rows_per_second: How many it has taken per second in the last seconds.
        tasks_held: Feeding tasks that wait until it takes more of a stream: it holds as many rows as it may.
        address: Host and port that are kept for TensorFlow's server there, as in ``ctx.cluster_spec``.
    """

    rank: int
    role: str
    index: int
    host: str
    state: str
    log_tail: tuple[str, ...] = ()
    rows_taken: int = 0
    rows_waiting: int = 0
    rows_per_second: float = 0.0
    tasks_held: int = 0
    address: str = ""

    def rows_in_words(self) -> str:
        """Return what is known of its rows, as the notebook shows it.

        >>> node = NodeStatus(rank=0, role="chief", index=0, host="h", state="up", rows_taken=1200, rows_waiting=7)
        >>> node.rows_in_words()
        '1,200 rows taken, 7 waiting, 0 per second'
        """
        taken, waiting = f"{self.rows_taken:,}", f"{self.rows_waiting:,}"
        held = f", feeding tasks that wait for it: {self.tasks_held}" if self.tasks_held else ""
        return f"{taken} rows taken, {waiting} waiting, {self.rows_per_second:,.0f} per second{held}"
