"""`ef.plan`: what `ef.run` with the same arguments would start, without starting anything."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from emberflow._choices import STRATEGIES, Strategy, Transport
from emberflow._names import check_arguments
from emberflow._preparation import Prepared, prepared, workers_of
from emberflow.config import Count, RunConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow._driver.row_routing import RunData
    from emberflow._node.context import Context
    from emberflow._plan.plan import RunPlan
    from emberflow._task.row_writer import DataSpec
    from emberflow.live_cluster import Cluster

EXCHANGES: Mapping[Transport, str] = {
    "ring": "ring: authenticated sockets between the workers",
    "collectives": "collectives: TensorFlow's own, NCCL on GPUs",
    "none": "none",
}
SHOWN_NODES = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodePlan:
    """One process that would start.

    Attributes:
        rank: Its global number.
        role: chief, worker, ps or evaluator.
        index: Its number within its role.
        gpus: GPUs of its own.
        calls_function: Whether it calls your function; servers of asynchronous strategies do not.
        share: Its share of the rows, such as "1/2"; empty for a node that is fed with none.
    """

    rank: int
    role: str
    index: int
    gpus: int
    calls_function: bool
    share: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What ``emberflow.plan`` returns: printed it is text, and in a notebook a table.

    Attributes:
        name: Your function.
        nodes: One per rank; each needs a task slot.
        master: Spark's master URL; empty on Spark Connect, which does not tell.
        slots: Task slots that Spark offers now; None where they cannot be counted, or come when they are needed.
        strategy: What the nodes do together.
        transport: How workers exchange gradients.
        launch: How Spark starts the nodes: "barrier", all at once; "independent", as executors come.
        data: What would be fed, by name: the columns of a DataFrame, or the files that nodes read.
        cache: Whether rows stay on local disk for later epochs.
        encrypt: Whether all traffic between driver and nodes is encrypted.
        preload: Packages that nodes import while their rows arrive.
        max_restarts: How often all nodes may be restarted after a loss.
        checkpoint_dir: Where checkpoints go, or None.
    """

    name: str
    nodes: tuple[NodePlan, ...]
    master: str
    slots: int | None
    strategy: Strategy
    transport: Transport
    launch: str
    data: Mapping[str, str]
    cache: bool
    encrypt: bool
    preload: tuple[str, ...]
    max_restarts: int
    checkpoint_dir: str | None

    def _facts(self) -> dict[str, str]:
        """Return what holds for all nodes, in words."""
        there = "cannot be counted here" if self.slots is None else f"{self.slots} there"
        facts = {
            "Spark": self.master or "Spark Connect",
            "task slots": f"{len(self.nodes)} needed, {there}",
            "start": "all nodes at once" if self.launch == "barrier" else "as executors come",
            "strategy": self.strategy,
            "gradients": EXCHANGES[self.transport],
        }
        facts |= {f"data {name!r}": text for name, text in self.data.items()}
        if self.data:
            facts["rows"] = (
                "kept on local disk for later epochs" if self.cache else "streamed once, in order of arrival"
            )
        if self.preload:
            facts["imported meanwhile"] = ", ".join(self.preload)
        facts["encrypted"] = "all traffic" if self.encrypt else "messages and files; not rows and gradients"
        facts["after a loss"] = (
            f"restarted up to {self.max_restarts} times" if self.max_restarts else "an error"
        )
        if self.checkpoint_dir:
            facts["checkpoints"] = self.checkpoint_dir
        return facts

    def _node_rows(self) -> list[tuple[str, str, str, str]]:
        """Return name, work, share of the rows and GPUs of each node, in words."""
        return [
            (
                f"{node.role} {node.rank}",
                "calls your function" if node.calls_function else "serves the model's variables",
                node.share,
                str(node.gpus or ""),
            )
            for node in self.nodes
        ]

    def __str__(self) -> str:
        facts = self._facts()
        width = max(map(len, facts))
        lines = [f"{self.name}: planned, nothing has started"]
        for name, work, share, gpus in self._node_rows()[:SHOWN_NODES]:
            more = (f", {share} of the rows" if share else "") + (f", GPUs: {gpus}" if gpus else "")
            lines.append(f"  {name}: {work}{more}")
        if len(self.nodes) > SHOWN_NODES:
            lines.append(f"  and {len(self.nodes) - SHOWN_NODES} more nodes")
        return "\n".join([*lines, *(f"  {name:{width}}  {text}" for name, text in facts.items())])

    def _repr_html_(self) -> str:
        """Show the nodes and the facts as tables in notebooks."""
        from emberflow.page.plan_cell import plan_html

        return plan_html(self.name, self._node_rows(), self._facts(), shown=SHOWN_NODES)


def plan(
    fn: "Callable[[Context], Any]",
    *,
    workers: Count | None = None,
    data: Any = None,
    spark: "SparkSession | None" = None,
    cluster: "Cluster | None" = None,
    **options: Any,
) -> Plan:
    """Return what ``emberflow.run`` with the same arguments would start: nodes, slots, strategy, rows.

    All that a run checks before its first node is checked here: the options, the pickling of your function, columns
    and files, the slots that Spark offers. No node starts, and Spark computes no rows.

    Args:
        fn: Your function.
        workers: As of `emberflow.run`.
        data: As of `emberflow.run`.
        spark: As of `emberflow.run`.
        cluster: As of `emberflow.run`.
        options: Any other option of `emberflow.run`.

    Returns:
        The plan; printed it is text, and the last line of a notebook's cell shows it as a table.

    Raises:
        ConfigError: The arguments are wrong, or the function cannot be pickled.
        ClusterError: Spark has too few slots for the nodes.

    Example:
        >>> print(ef.plan(train, workers=2, data=df))  # doctest: +SKIP
        train: planned, nothing has started
          chief 0: calls your function, 1/2 of the rows
          worker 1: calls your function, 1/2 of the rows
    """
    known = [each.name for each in dataclasses.fields(RunConfig) if each.name != "workers"]
    check_arguments("plan()", options, [*known, "workers", "data", "spark", "cluster"])
    config = RunConfig(workers=workers_of(workers, cluster), **options)
    with prepared(fn, config, data=data, spark=spark, cluster=cluster) as ready:
        return _plan_of(fn, ready)


def _plan_of(fn: Callable[..., Any], ready: Prepared) -> Plan:
    from emberflow._driver.run_plan import make_plan
    from emberflow._driver.slots import place_nodes, slots_offered

    program, config = ready.program, ready.config
    nodes = place_nodes(ready.spark, config, ready.facts)
    has_rows = bool(program.data.frames)
    made = make_plan(config, ready.facts, nodes, waits_for_rows=has_rows, preload=program.preload)
    return Plan(
        name=getattr(fn, "__name__", type(fn).__name__),
        nodes=_nodes_of(made, has_data=bool(program.spec.names)),
        master=ready.facts.master or "",
        slots=slots_offered(ready.spark, ready.facts),
        strategy=made.strategy,
        transport=made.transport,
        launch=made.launch,
        data=_data_of(program.data, program.spec),
        cache=config.cache,
        encrypt=made.encrypt,
        preload=made.preload,
        max_restarts=config.max_restarts,
        checkpoint_dir=config.checkpoint_dir,
    )


def _nodes_of(made: "RunPlan", *, has_data: bool) -> tuple[NodePlan, ...]:
    trainers = sum(node.trains for node in made.nodes)
    share = "" if not has_data else "all" if trainers == 1 else f"1/{trainers}"
    return tuple(
        NodePlan(
            rank=node.rank,
            role=node.role,
            index=node.index,
            gpus=made.gpus if node.trains else 0,
            calls_function=node.role != "ps" or not STRATEGIES[made.strategy].is_asynchronous,
            share=share if node.trains else "",
        )
        for node in made.nodes
    )


def _data_of(data: "RunData", spec: "DataSpec") -> dict[str, str]:
    frames = {
        name: ", ".join(f"{column} {kind}" for column, kind in frame.dtypes)
        for name, frame in data.frames.items()
    }
    files = {
        name: f"{type(source).__name__}, read by the nodes in {len(parts):,} parts"
        for name, (source, parts) in spec.files.items()
    }
    return frames | files
