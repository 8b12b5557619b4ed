"""The chief of a run without Spark: it decides for all tasks, and supervises them as a driver of Spark does."""

import dataclasses
import os
import threading
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress

import cloudpickle

from emberflow._driver.checkpoint_plan import drop_if_empty, plan_checkpoints
from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.console import Console
from emberflow._driver.events import Events, JobFailed
from emberflow._driver.hub import Hub
from emberflow._driver.paths import path_rules_of, with_resolved_paths
from emberflow._driver.recording import (
    failure_recorded,
    options_of,
    record_failure,
    record_plan,
    record_result,
    start_recording,
)
from emberflow._driver.row_routing import data_spec, read_data, with_resolved_files
from emberflow._driver.run_plan import make_plan
from emberflow._driver.storage_settings import storage_settings_of
from emberflow._managed.data_options import sources_of
from emberflow._managed.managed_attempt import ManagedAttempt
from emberflow._managed.member import Member, join, run_member
from emberflow._managed.run_connection import Order
from emberflow._managed.run_server import RunServer
from emberflow._managed.verdict import CLUSTER_FAILED, DONE, Verdict, verdict_of
from emberflow._plan import deadlines
from emberflow._plan.plan import CheckpointPlan
from emberflow._plan.roles import Node
from emberflow._record.events import AttemptStarted, SlotsHeld
from emberflow._record.recorder import Recorder
from emberflow._task.gpus import count_free_gpus
from emberflow.config import RunConfig
from emberflow.errors import ClusterError, ConfigError, EmberflowError


def make_order(nodes: tuple[Node, ...], options: Namespace) -> Order:
    """Return what is decided once for all tasks: the plan, and the list of files.

    Raises:
        ConfigError: The options are wrong or contradict the roles.
        StorageError: The files are not there.
    """
    config = with_resolved_paths(None, _config_of(nodes, options))
    data = read_data(sources_of(options.data))
    if data.frames:
        raise ConfigError(
            f"Nodes without Spark read files. Received: a DataFrame as {next(iter(data.frames))!r}.",
            fix="Pass ef.Parquet(...) or ef.TFRecords(...), or render a target of Spark.",
        )
    facts = ClusterFacts(is_connect=False, paths=path_rules_of(None), storage=storage_settings_of(None))
    plan = dataclasses.replace(
        make_plan(config, facts, nodes),
        launch="manager",
        launch_reason="a cluster manager has started the tasks",
    )
    spec = data_spec(with_resolved_files(None, data), config)
    if config.checkpoint_dir:
        plan = dataclasses.replace(plan, checkpoints=plan_checkpoints(config.checkpoint_dir, plan.run_id))
    return Order(
        plan=plan, data=spec, storage=facts.storage, record=config.record, options=options_of(config)
    )


def _config_of(nodes: tuple[Node, ...], options: Namespace) -> RunConfig:
    roles = [node.role for node in nodes]
    gpus = count_free_gpus(os.environ.get("CUDA_VISIBLE_DEVICES")) if options.gpus is None else options.gpus
    return RunConfig(
        workers=sum(node.trains for node in nodes),
        ps=roles.count("ps"),
        evaluator="evaluator" in roles,
        gpus=gpus,
        gpu_source="nvml",
        transport=options.transport,
        strategy=options.strategy,
        checkpoint_dir=options.checkpoint_dir,
        cache=not options.no_cache,
        spool_dir=options.spool_dir,
        start_timeout=options.start_timeout,
        join_timeout=options.join_timeout,
        exchange_timeout=options.exchange_timeout,
        evaluator_timeout=options.evaluator_timeout,
        encrypt=options.encrypt,
        allow_unencrypted=options.allow_unencrypted,
        record=options.record,
    )


class ChiefTask:
    """The chief's own task, on a thread beside the attempt: the others were started by the cluster manager."""

    loss_settle = 0.0

    def __init__(self, member: Member, order: Order, address: tuple[str, int], events: Events) -> None:
        self._member = member
        self._order = order
        self._address = address
        self._events = events
        self._thread = threading.Thread(target=self._run, name="emberflow-task", daemon=True)

    def start(self) -> None:
        """Start the chief's node."""
        self._thread.start()

    def close(self) -> None:
        """Wait until nothing of it is left."""
        if self._thread.ident is not None:
            self._thread.join(deadlines.TASKS_END_TIMEOUT)

    def submit_next_stage(self, joined: int) -> None:
        """All tasks are started by the cluster manager."""

    def has_executors(self) -> bool:
        """The cluster manager has started this task, and will start the others."""
        return True

    def why_lost(self, rank: int) -> str:  # noqa: ARG002
        """Nobody knows more."""
        return ""

    def cancel(self) -> None:
        """Tasks end by themselves when their connection does."""

    def _run(self) -> None:
        driver = join(self._member, self._address)
        if driver is None:
            error = ClusterError(
                f"The chief must reach itself. Received: no answer at {self._address}.",
                fix="See whether the name of this task is that of another one.",
            )
            self._events.put(JobFailed(error, 0))
            return
        with driver:
            run_member(self._member, self._order, driver, log_copy="none")


def lead(member: Member, make: Callable[[], Order]) -> Verdict:
    """Run the chief's node, and supervise all others until the last has ended; return how the run ended.

    Args:
        member: The chief's own task.
        make: Returns the order; where it cannot, all tasks are told why.
    """
    host, port = member.chief_address
    verdict = Verdict(code=CLUSTER_FAILED, text="The chief was told to end, and so its run has ended.")
    with closing(Hub(host, member.key, len(member.nodes), (port, port) if port else None)) as hub:
        server = RunServer()
        hub.on_values = server.admit
        try:
            order = make()
            recorder = Recorder()
            with failure_recorded(recorder):
                _begin_record(recorder, member, order)
                server.publish(cloudpickle.dumps(order))
                verdict = _supervise(member, order, (host, hub.port), hub, recorder)
        except EmberflowError as error:
            verdict = verdict_of(error)
            server.refuse(tasks=len(member.nodes) - 1)
        finally:
            server.close(verdict)
    return verdict


def _begin_record(recorder: Recorder, member: Member, order: Order) -> None:
    """Note what begins, in the record that was asked for."""
    start_recording(
        recorder, None, order.plan.run_id, "run", member.fn, record=order.record, options=order.options
    )
    record_plan(recorder, order.plan, member.nodes)
    recorder.emit(SlotsHeld)  # by the manager, which has started the tasks
    recorder.emit(AttemptStarted, attempt=0)  # the manager's next start is a run of its own


def _supervise(
    member: Member, order: Order, address: tuple[str, int], hub: Hub, recorder: Recorder
) -> Verdict:
    task = ChiefTask(member, order, address, hub.events)
    with ExitStack() as held:
        if order.plan.checkpoints:
            held.callback(_drop_checkpoints, order.plan.checkpoints)
        held.callback(task.close)
        console = held.enter_context(Console(member.nodes, verbose=True))
        try:
            ManagedAttempt(order.plan, hub, task, console, recorder=recorder).run()
        except EmberflowError as error:
            record_failure(recorder, error)
            return verdict_of(error)
        record_result(recorder, None)
        return Verdict(code=DONE)


def _drop_checkpoints(plan: CheckpointPlan) -> None:
    with suppress(EmberflowError):
        drop_if_empty(plan)
