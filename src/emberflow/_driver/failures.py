"""How the nodes of one attempt ended, and which failure is the one to report."""

import logging
from collections.abc import Callable, Mapping

from emberflow._driver.spark_errors import explain_loss, lost_task_in
from emberflow._plan.plan import RunPlan
from emberflow._protocol.outcome import Ending, Outcome, error_of, gone_outcome, lost_outcome, outcome_in
from emberflow.errors import EmberflowError, FailureCause

log = logging.getLogger("emberflow")


class FailureTracker:
    """Collects the outcomes of all nodes, and decides which are failures of the run.

    Args:
        plan: Says whether the run can continue without a node.
        hosts: By rank, where the tasks run that have joined.
        on_tolerated: Called with the rank of each node that the run continues without.
        on_outcome: Called with each outcome.

    Attributes:
        failures: The outcomes that end the run, in order of arrival.
        has_lost_task: Whether a task is gone that has not told how its node ended.
    """

    def __init__(
        self,
        plan: RunPlan,
        hosts: Mapping[int, str],
        on_tolerated: Callable[[int], None],
        on_outcome: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        self.failures: list[Outcome] = []
        self.has_lost_task = False
        self._plan = plan
        self._hosts = hosts
        self._on_tolerated = on_tolerated
        self._on_outcome = on_outcome
        self._outcomes: dict[int, Outcome] = {}
        self._tolerated: set[int] = set()

    def record(self, outcome: Outcome) -> None:
        """Take the outcome of a node."""
        is_new = outcome.rank not in self._outcomes
        self._outcomes[outcome.rank] = outcome
        self._on_outcome(outcome)
        if outcome.ending is Ending.RETURNED:
            return
        if not outcome.is_tolerable or not self._plan.can_lose({*self._tolerated, outcome.rank}):
            self.failures.append(outcome)
        elif is_new:
            self._tolerate(outcome)

    def record_gone(self, rank: int) -> None:
        """Note that the task of a node is gone, unless more is known of its end."""
        if rank not in self._outcomes:
            self.has_lost_task = True
            self.record(gone_outcome(self._plan, rank, self._host(rank)))

    def record_lost(self, rank: int, problem: str, fix: str = "") -> None:
        """Note why a node is lost, unless its task has reported more than that it is gone."""
        known = self._outcomes.get(rank)
        if known is not None and known.cause is not FailureCause.TASK_GONE:
            return
        self.failures = [failure for failure in self.failures if failure is not known]
        self.record(lost_outcome(self._plan.nodes[rank], self._host(rank), problem=problem, fix=fix))

    def record_repeated(self, rank: int) -> None:
        """Note that Spark runs the task of a node again that has ended: what the node returned is lost."""
        node = self._plan.nodes[rank]
        problem = (
            "Spark lost the result of its task with its executor, after your function had returned there"
        )
        self.record(lost_outcome(node, self._host(rank), problem=problem))

    def record_job_error(self, error: Exception, first_rank: int) -> None:
        """Take what Spark's error says of a node: its own outcome, or that its task failed before all others.

        Args:
            error: What Spark raised.
            first_rank: The first rank of the stage that failed.
        """
        has_barrier = self._plan.launch == "barrier"
        if outcome := outcome_in(str(error)):
            self.record(outcome)
            return
        if not has_barrier and not self._hosts:
            return  # the task is one that has rows: nodes join when all of these are there
        if (task := lost_task_in(error, has_barrier=has_barrier)) is None:
            return
        # Spark may report this before the connection closes, or after those of tasks that Spark then ended.
        rank = first_rank + task.partition
        if task.problem:
            self.record_lost(rank, task.problem, task.fix)
        else:
            self.record_gone(rank)
        self.failures.sort(key=lambda failure: failure.rank != rank)

    def explain_first(self, why_lost: Callable[[int], str]) -> bool:
        """Ask Spark why it lost the first node, whose task it starts again; tell whether it says."""
        rank = self.failures[0].rank
        why = why_lost(rank)
        if why:
            self.record_lost(rank, *explain_loss(why, "its Spark task was lost"))
        return bool(why)

    def outcomes(self) -> Mapping[int, Outcome]:
        """Return how each node ended that has ended, by rank."""
        return self._outcomes

    def is_explained(self) -> bool:
        """Tell whether more is known than that tasks are gone."""
        return any(failure.cause is not FailureCause.TASK_GONE for failure in self.failures)

    def may_follow_from_interrupt(self) -> bool:
        """Tell whether all failures can be the consequence of an interrupted job: its tasks report nothing then."""
        return all(each.cause is FailureCause.TASK_GONE or each.is_collateral for each in self.failures)

    def error(self) -> EmberflowError:
        """Return the error to raise."""
        return error_of(self.failures)

    def _tolerate(self, lost: Outcome) -> None:
        """Let the run continue without a worker; its rows will not be seen any more in this run."""
        self._tolerated.add(lost.rank)
        log.warning("%s The run goes on without it, and without its rows.", lost.error().problem)
        self._on_tolerated(lost.rank)

    def _host(self, rank: int) -> str:
        return self._hosts.get(rank, "a lost executor")
