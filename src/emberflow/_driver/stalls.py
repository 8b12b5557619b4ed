"""Nodes that the others wait for: which are missing, what they do meanwhile, and what to do about it."""

import logging
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from emberflow._driver.hub import Hub
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._protocol.driver_messages import Probe, ProbeAnswer
from emberflow._protocol.node_state import NodeState
from emberflow.errors import StartTimeoutError

log = logging.getLogger("emberflow")


class Missed(NamedTuple):
    """A node that the others have waited for longer than they may."""

    rank: int
    problem: str
    fix: str


class StallDetector:
    """Asks the tasks of missing ranks what they do when an exchange makes no progress for `exchange_timeout` seconds.

    Args:
        plan: Whose `exchange_timeout` holds.
        hub: Where the ranks exchange.
        hosts: By rank, those that have joined: others are missed by `start_timeout`.
    """

    def __init__(self, plan: RunPlan, hub: Hub, hosts: Mapping[int, str]) -> None:
        self._plan = plan
        self._limit = plan.exchange_timeout
        self._hub = hub
        self._hosts = hosts
        self._next = time.monotonic() + self._limit * deadlines.STALL_CHECK_SHARE
        self._asked: dict[int, float] = {}
        self._answers: dict[int, NodeState] = {}
        self._waited_for_until: dict[int, float] = {}

    def due(self) -> float:
        """Return when `missed` has to be called again at the latest."""
        return self._next

    def on_answer(self, rank: int, message: ProbeAnswer) -> None:
        """Note what a task has answered."""
        self._answers[rank] = message.state
        self._next = time.monotonic()

    def missed(self) -> list[Missed]:
        """Return the nodes that others have waited for too long; ask those of which that is not clear yet."""
        now = time.monotonic()
        if now < self._next:
            return []
        self._next = now + min(self._limit, deadlines.ANSWER_TIMEOUT) * deadlines.STALL_CHECK_SHARE
        late = self._late(now)
        self._asked = {rank: asked for rank, asked in self._asked.items() if rank in late}
        checked = [self._check(rank, since, now) for rank, since in late.items()]
        return [missed for missed in checked if missed is not None]

    def _late(self, now: float) -> dict[int, float]:
        """Return since when the others wait, by the rank that they wait for."""
        late: dict[int, float] = {}
        for since, missing in self._hub.rendezvous.waiting().values():
            if now - since >= self._limit:
                late |= {rank: since for rank in missing if rank in self._hosts}
        return {rank: since for rank, since in late.items() if self._waited_for_until.get(rank, 0.0) <= now}

    def _check(self, rank: int, since: float, now: float) -> Missed | None:
        state = self._answers.pop(rank, None)
        if rank not in self._asked:
            self._asked[rank] = now
            self._hub.send(rank, Probe())
        elif state is not None and state.has_no_rows:
            del self._asked[rank]
            self._waited_for_until[rank] = now + self._limit
            who = f"{self._plan.nodes[rank].name} on {self._hosts[rank]}"
            log.warning("%s is %s; others have waited %.0f s for it.", who, state, now - since)
        elif state is not None:
            return Missed(
                rank,
                f"others have waited {self._limit:g} s (exchange_timeout) for it to ask for its next rows",
                "See what your function does between two batches there, or raise exchange_timeout.",
            )
        elif now - self._asked[rank] >= min(self._limit, deadlines.ANSWER_TIMEOUT):
            return Missed(
                rank,
                f"others have waited {self._limit:g} s (exchange_timeout) for it, and its Spark task does not answer",
                "See whether the executor's Python process was stopped (SIGSTOP, a debugger), whether its host swaps "
                "or is cut off, or raise exchange_timeout.",
            )
        return None


def start_timeout_error(plan: RunPlan, joined: Collection[int], ready: Collection[int]) -> StartTimeoutError:
    """Return the error that names the nodes which are not up in time."""
    absent = [node.name for node in plan.nodes if node.rank not in joined]
    unready = [node.name for node in plan.nodes if node.rank in joined and node.rank not in ready]
    reasons = []
    if plan.launch == "manager":
        return _tasks_missing(plan, absent, unready)
    fix = (
        "Wait until other jobs are done, see what your function's modules do on import, or raise "
        "start_timeout."
    )
    if absent and plan.launch == "independent":
        there = len(plan.nodes) - len(absent)
        reasons.append(
            f"executors came for {there} of {len(plan.nodes)} nodes, and not for {', '.join(absent)}"
        )
        fix = (
            "See whether the cluster manager has room for more executors (its queue, its quota), and whether other "
            "jobs of this session hold them; pass fewer workers, or raise start_timeout."
        )
    elif absent:
        reasons.append(f"Spark has not started {', '.join(absent)}: its slots may be busy with other jobs")
    if unready:
        reasons.append(f"{', '.join(unready)} started but did not get ready")
    return StartTimeoutError(
        f"All nodes must be up within {plan.start_timeout:g} s. Received: {'; '.join(reasons)}.",
        fix=fix,
    )


def _tasks_missing(plan: RunPlan, absent: list[str], unready: list[str]) -> StartTimeoutError:
    """Return the error for tasks that a cluster manager should have started."""
    reasons = [f"nothing was heard of {', '.join(absent)}"] if absent else []
    reasons += [f"{', '.join(unready)} started but did not get ready"] if unready else []
    return StartTimeoutError(
        f"All tasks must be up within {plan.start_timeout:g} s. Received: {'; '.join(reasons)}.",
        fix="See what the cluster manager says of these tasks: no room for them, an image that cannot be pulled, "
        "exit code 2 for a wrong key. Or raise --start-timeout.",
    )
