"""What a run gives back: the chief's value, and one report per node."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One call of ``ctx.report`` on one node.

    Attributes:
        rank: The node that reported.
        step: The step it named, or None.
        values: Name to number.
        seconds: When it was reported, in seconds since that node called your function.
        attempt: In which attempt of the run, from 0.
    """

    rank: int
    step: int | None
    values: dict[str, float]
    seconds: float
    attempt: int = 0


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one node sends back when it is done.

    Attributes:
        rank: The node's global number.
        role: chief, worker, ps or evaluator.
        index: Its number within its role.
        host: Where it ran, as Spark names it.
        devices: The accelerators that it could see; empty on a CPU node.
        ending: "returned"; or "lost", where the run went on without it.
        seconds: How long your function ran there.
        log_tail: The last lines that it printed.
        value: What your function returned there, if that was small and could be sent.
        feed: Where it had data: ``rows``, ``bytes``, ``seconds`` and ``rows_per_second`` on their way to this
            node, and which side was waited for (``waiting_for``: the ``source`` is Spark or the files, the
            ``sink`` the local disk, or the trainer with ``cache=False``); under ``datasets``, by name, the
            same of what your function read, where the ``sink`` is the trainer.
        gpus: Name, memory, and highest use of its own GPUs, where the NVIDIA library is installed.
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
        metrics: What ``ctx.report`` reported in all attempts, in order of arrival. Of more than 2,000 reports of one
            node under the same names an even selection is kept, with the first and the last.
        seconds: How long the run took on the driver, start to end.
        attempts: How many times the gang was started.
        tensorboard_url: Where TensorBoard was while the run went on, or None.
    """

    value: Any
    reports: tuple[Report, ...]
    metrics: tuple[Metric, ...] = field(default=(), repr=False)
    seconds: float
    attempts: int = 1
    tensorboard_url: str | None = None
