"""What the driver puts into a run's record: how it began, its plan, how it ended."""

import dataclasses
import functools
import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from emberflow import storage
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node
from emberflow._record.events import PlannedNode, RunEnded, RunFailure, RunPlanned, RunStarted
from emberflow._record.record_files import name_of_record
from emberflow._record.record_writer import RecordWriter
from emberflow._record.recorder import Recorder
from emberflow.config import RunConfig
from emberflow.errors import EmberflowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("emberflow", "pyspark", "tensorflow", "keras", "numpy", "pyarrow")
SHOWN_PLAN = ("strategy", "transport", "launch", "launch_reason", "rendezvous", "gpus", "encrypt")
VALUE_LENGTH = 500  # characters of what the chief returned


def start_recording(
    recorder: Recorder,
    spark: "SparkSession | None",
    run_id: str,
    kind: str,
    fn: Callable[..., Any],
    *,
    record: str | None,
    options: dict[str, Any],
) -> None:
    """Note that a run begins now, and where its record goes.

    Args:
        recorder: That of the run.
        spark: The session, if there is one.
        run_id: The run's name.
        kind: "run", "cluster" or "parallel".
        fn: Your function.
        record: The folder for records, resolved, if there is to be one.
        options: What the caller chose.

    Raises:
        StorageError: The record cannot be written; nothing has started then.
    """
    at = time.time()
    if record is not None:
        recorder.write_to(RecordWriter(storage.join(record, name_of_record(run_id, at))))
    name = getattr(fn, "shown_name", None) or getattr(fn, "__name__", type(fn).__name__)
    recorder.emit(
        RunStarted,
        run_id=run_id,
        kind=kind,
        name=name,
        at=at,
        options={**getattr(fn, "shown_options", {}), **options},
        versions=_versions(spark),
    )


def options_of(config: RunConfig) -> dict[str, Any]:
    """Return the options that are not the default."""
    return {
        each.name: getattr(config, each.name)
        for each in dataclasses.fields(config)
        if getattr(config, each.name) != each.default
    }


def record_plan(recorder: Recorder, plan: RunPlan, nodes: Sequence[Node]) -> None:
    """Note what was decided."""
    planned = tuple(PlannedNode(rank=node.rank, role=node.role, index=node.index) for node in nodes)
    recorder.emit(RunPlanned, nodes=planned, plan={name: getattr(plan, name) for name in SHOWN_PLAN})


@contextmanager
def failure_recorded(recorder: Recorder) -> Iterator[None]:
    """Note the error that leaves the block, unless the run's end is known already, and complete the record."""
    try:
        yield
    except BaseException as error:
        record_failure(recorder, error)
        raise


def record_failure(recorder: Recorder, error: BaseException) -> None:
    """Note that the run has failed, unless its end is known already, and complete the record."""
    if not recorder.state.is_over:
        recorder.emit(RunEnded, failure=failure_of(error))
    recorder.close()


def record_result(recorder: Recorder, value: Any) -> None:
    """Note that the run has succeeded, and complete the record."""
    recorder.emit(RunEnded, value=_beginning(value))
    recorder.close()


def failure_of(error: BaseException) -> RunFailure:
    """Return an error as a record keeps it."""
    kind = type(error).__name__
    if not isinstance(error, Exception):  # Ctrl-C, or SIGTERM
        return RunFailure(kind=kind, problem="The run was interrupted.")
    if not isinstance(error, EmberflowError):
        return RunFailure(kind=kind, problem=str(error))
    return RunFailure(
        kind=kind,
        problem=error.problem,
        fix=error.fix,
        traceback=getattr(error, "remote_traceback", ""),
        rank=getattr(error, "rank", -1),
        log_tail=getattr(error, "log_tail", ""),
    )


def _versions(spark: "SparkSession | None") -> dict[str, str]:
    return _package_versions() | ({"spark": str(spark.version)} if spark is not None else {})


@functools.cache  # 10 ms, of each run otherwise
def _package_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _beginning(value: Any) -> str:
    """Return the beginning of a value as text; nothing of one that cannot be shown."""
    if value is None:
        return ""
    with suppress(Exception):  # a class of the user's own
        text = value.shown_value if hasattr(type(value), "shown_value") else repr(value)
        return text if len(text) <= VALUE_LENGTH else f"{text[:VALUE_LENGTH]} ..."
    return ""
