"""Which job of TensorFlowOnSpark each node of Emberflow is, and the cluster as old programs see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorflowonspark.old_errors import UsageError

Template = dict[str, list[int]]  # job name to executor ids


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The jobs of a cluster.

    Attributes:
        ps: How many parameter servers.
        master: The job name of the one node that leads, "chief" or "master", or None.
        evaluator: Whether there is one.
        workers: Nodes of job "worker".
    """

    ps: int
    master: str | None
    evaluator: bool
    workers: int

    @property
    def trainers(self) -> int:
        """How many nodes train, the master included."""
        return self.workers + (self.master is not None)

    def template(self) -> Template:
        """Return the executor ids of each job: ps first, then the master, the evaluator, the workers.

        >>> Layout(ps=1, master="chief", evaluator=False, workers=2).template()
        {'ps': [0], 'chief': [1], 'worker': [2, 3]}
        """
        counts = [("ps", self.ps), (self.master or "", int(self.master is not None))]
        counts += [("evaluator", int(self.evaluator)), ("worker", self.workers)]
        found: Template = {}
        first = 0
        for job, count in counts:
            if count:
                found[job] = list(range(first, first + count))
            first += count
        return found

    def job_of(self, role: str, index: int) -> tuple[str, int]:
        """Return job name and task index of a node of Emberflow.

        >>> Layout(ps=0, master=None, evaluator=False, workers=2).job_of("worker", 0)
        ('worker', 1)
        """
        if role in ("ps", "evaluator"):
            return role, index
        if self.master is not None:
            return (self.master, 0) if role == "chief" else ("worker", index)
        return ("worker", 0) if role == "chief" else ("worker", index + 1)

    def executor_id(self, role: str, index: int) -> int:
        """Return the number that the node has over all jobs."""
        job, task = self.job_of(role, index)
        return self.template()[job][task]

    def cluster_spec(self, spec: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return Emberflow's cluster spec by the jobs of the old library, without the evaluator.

        >>> Layout(ps=0, master=None, evaluator=False, workers=2).cluster_spec({"chief": ["a:1"], "worker": ["b:2"]})
        {'worker': ['a:1', 'b:2']}
        """
        chief, workers = list(spec.get("chief", ())), list(spec.get("worker", ()))
        jobs = {"ps": list(spec.get("ps", ()))}
        jobs |= (
            {"worker": chief + workers} if self.master is None else {self.master: chief, "worker": workers}
        )
        return {job: addresses for job, addresses in jobs.items() if addresses}


def layout_of(num_executors: int, num_ps: int, master_node: str | None, eval_node: bool) -> Layout:
    """Return the jobs of a cluster of so many nodes.

    Raises:
        UsageError: There are too few nodes for them.
    """
    if num_ps < 0:
        raise UsageError(
            f"num_ps cannot be negative. Received: num_ps={num_ps}.", fix="Pass num_ps=0 or more."
        )
    others = num_ps + bool(master_node) + bool(eval_node)
    workers = max(num_executors - others, 0)
    if others + workers != num_executors:
        raise UsageError(
            f"TensorFlow cluster requires {others + workers} nodes, but only {num_executors} executors available. "
            "Received: "
            f"num_executors={num_executors}, num_ps={num_ps}, master_node={master_node!r}, eval_node={eval_node}.",
            fix=f"Pass num_executors={others + 1} or more, or fewer of the others.",
        )
    if not workers and not master_node:
        raise UsageError(
            "TensorFlow cluster requires at least one worker or master/chief node. Received: "
            f"num_executors={num_executors}, num_ps={num_ps}, eval_node={eval_node}.",
            fix=f"Pass num_executors={num_executors + 1}.",
        )
    return Layout(ps=num_ps, master=master_node or None, evaluator=bool(eval_node), workers=workers)
