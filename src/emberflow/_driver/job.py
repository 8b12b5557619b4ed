"""The Spark job of one attempt, one thread per stage."""

import contextlib
import dataclasses
import functools
import threading
from typing import TYPE_CHECKING, Any, Protocol

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.events import Events, JobFailed, JobRows, TasksRunning
from emberflow._driver.interpreter import collect_in_arrow, collect_without_sql
from emberflow._driver.profiles import count_slots, profile_of
from emberflow._driver.row_routing import ARROW_BATCHES, RunData, directed_rows
from emberflow._driver.task_failures import failure_of_task
from emberflow._plan import deadlines
from emberflow._plan.stages import Stage
from emberflow._task.live_task import run_live_task, start_live_node
from emberflow._task.node_task import OUTPUT_SCHEMA, run_task
from emberflow._task.task_spec import TaskSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class AttemptJob(Protocol):
    """What an attempt needs of whatever runs its tasks."""

    def start(self) -> None:
        """Start the tasks, or the first of them."""

    def submit_next_stage(self, joined: int) -> None:
        """Start further tasks, once so many have joined."""

    def has_executors(self) -> bool:
        """Tell whether tasks can run at all."""

    def why_lost(self, rank: int) -> str:
        """Return why the task of a rank was lost; "" where that is not known."""

    @property
    def loss_settle(self) -> float:
        """Seconds within which it becomes known why a task is gone."""

    def cancel(self) -> None:
        """End the tasks."""


class Job:
    """Runs one task per node, in one stage or two, and puts the result into `events`.

    These are `JobRows`, `JobFailed`, and on Spark Connect `TasksRunning`.
    """

    def __init__(
        self,
        spark: "SparkSession",
        spec: TaskSpec,
        data: RunData,
        facts: ClusterFacts,
        events: Events,
    ) -> None:
        self._spark = spark
        self._data = data
        self._spec = spec
        self._facts = facts
        self._events = events
        self._tag = f"emberflow-{spec.plan.run_id}-{spec.plan.attempt}"
        self._lock = threading.Lock()
        self._rows: list[Any] = []
        self._waiting = list(spec.plan.stages)
        self._running = list(spec.plan.stages)

    def start(self) -> None:
        """Submit a job for the first stage; with a second one, Spark runs them side by side."""
        self.submit_next_stage(0)

    def submit_next_stage(self, joined: int) -> None:
        """Submit the next stage, once all nodes of the stages before it have joined.

        Workers with GPUs start first: nodes without could occupy the cores of the executors that have GPUs.
        """
        while self._waiting and self._waiting[0].first_rank <= joined:
            stage = self._waiting.pop(0)
            name = f"{self._tag}-{stage.first_rank}"
            threading.Thread(target=self._run, args=(stage,), name=name, daemon=True).start()

    def has_executors(self) -> bool:
        """Tell whether Spark can run tasks at all, as far as it says."""
        return self._facts.is_connect or count_slots(self._spark) > 0

    def why_lost(self, rank: int) -> str:
        """Return what Spark says of the task of a rank that it has lost; "" where it does not say."""
        if self._facts.is_connect:
            return ""
        first = max(stage.first_rank for stage in self._spec.plan.stages if stage.first_rank <= rank)
        return failure_of_task(self._spark, f"{self._tag}-{first}", rank - first)

    @property
    def loss_settle(self) -> float:
        """Seconds within which Spark says why a task is gone."""
        is_yarn = self._facts.master == "yarn"
        return deadlines.LOST_CONTAINER_SETTLE if is_yarn else deadlines.LOST_TASK_SETTLE

    def cancel(self) -> None:
        """Have Spark end the tasks."""
        with contextlib.suppress(Exception):  # a session that is gone has no tasks either
            if self._facts.is_connect:
                self._spark.interruptTag(self._tag)
            else:
                self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def _run(self, stage: Stage) -> None:
        try:
            if self._facts.is_connect:
                with _progress(self._spark, self._events):
                    self._spark.addTag(self._tag)  # per thread, so it ends with this one
                    rows = self._collect(stage)
            else:
                context = self._spark.sparkContext
                context.addJobTag(self._tag)
                context.addJobTag(f"{self._tag}-{stage.first_rank}")
                context.setInterruptOnCancel(True)
                context.setLocalProperty("spark.job.description", f"emberflow {self._spec.plan.run_id}")
                rows = self._collect(stage)
        except Exception as error:  # noqa: BLE001 - whatever Spark raised; the attempt decides what it means
            self._events.put(JobFailed(error, stage.first_rank))
            return
        with self._lock:
            self._rows += rows
            self._running.remove(stage)
            if not self._running:
                self._events.put(JobRows(self._rows))

    def _collect(self, stage: Stage) -> list[Any]:
        if self._spec.plan.is_live and not self._facts.is_connect:
            return self._start_live_nodes(stage)
        trainers = sum(node.trains for node in self._spec.plan.nodes)
        with contextlib.ExitStack() as held:
            if self._data.frames and stage.first_rank == 0:
                held.enter_context(ARROW_BATCHES.applied(self._spark))
                rows = directed_rows(self._data, stage, trainers)
            else:
                rows = self._spark.range(0, stage.ranks, 1, stage.ranks)
            return self._run_tasks(rows, stage)

    def _start_live_nodes(self, stage: Stage) -> list[Any]:
        task = functools.partial(start_live_node, self._spec_of(stage))
        barrier = self._spec.plan.launch == "barrier"
        profile = profile_of(stage, self._facts)
        return collect_without_sql(self._spark, stage.ranks, task, barrier=barrier, profile=profile)

    def _spec_of(self, stage: Stage) -> TaskSpec:
        return dataclasses.replace(self._spec, first_rank=stage.first_rank)

    def _run_tasks(self, rows: "DataFrame", stage: Stage) -> list[Any]:
        run = run_live_task if self._spec.plan.is_live else run_task
        task = functools.partial(run, self._spec_of(stage))
        profile = profile_of(stage, self._facts)
        barrier = self._spec.plan.launch == "barrier"
        return collect_in_arrow(rows, task, OUTPUT_SCHEMA, barrier=barrier, profile=profile)


@contextlib.contextmanager
def _progress(spark: Any, events: Events) -> Any:
    def handler(*, inflight_tasks: int = 0, **_: Any) -> None:
        if inflight_tasks:
            events.put(TasksRunning(inflight_tasks))

    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
