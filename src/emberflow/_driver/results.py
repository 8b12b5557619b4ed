"""From the rows and values that the last attempt brought back to the result of a run."""

import pickle
import time
from typing import IO, Any

from emberflow._driver.recording import record_result
from emberflow._driver.supervisor import Supervised
from emberflow._protocol.outcome import Outcome
from emberflow._record.recorder import Recorder
from emberflow.page.report import RunReport
from emberflow.result import Report, Result


def result_of(done: Supervised, started: float, recorder: Recorder) -> Result:
    """Return what the user gets of a run that began at `started`, and complete its record."""
    values = _values(done.rows, done.values)
    record_result(recorder, values.get(0))
    return Result(
        value=values.get(0),
        reports=_reports(done.rows, values),
        metrics=tuple(done.attempt.reports.metrics.items()),
        seconds=time.monotonic() - started,
        attempts=done.attempts,
        tensorboard_url=done.attempt.reports.tensorboard_url,
        record=recorder.folder,
        _report=RunReport(recorder.state),
    )


def _values(rows: list[Any], files: dict[int, IO[bytes]]) -> dict[int, Any]:
    """Return the value of each rank, from its file or from its chunks."""
    values = {}
    for rank, file in files.items():
        with file:
            values[rank] = pickle.load(file)
    chunks: dict[int, list[bytes]] = {}
    for row in sorted(rows, key=lambda row: (row["rank"], row["part"])):
        chunks.setdefault(row["rank"], []).append(bytes(row["value"]))
    joined = {rank: b"".join(parts) for rank, parts in chunks.items()}
    return values | {rank: pickle.loads(data) for rank, data in joined.items() if data}


def _reports(rows: list[Any], values: dict[int, Any]) -> tuple[Report, ...]:
    outcomes = [Outcome.from_json(row["outcome"]) for row in rows if row["part"] == 0]
    return tuple(
        Report(
            rank=outcome.rank,
            role=outcome.role,
            index=outcome.index,
            host=outcome.host,
            devices=outcome.devices,
            ending=outcome.ending.value,
            seconds=outcome.seconds,
            log_tail=outcome.log_tail,
            value=values.get(outcome.rank),
            feed=outcome.feed,
            gpus=outcome.gpus,
        )
        for outcome in sorted(outcomes, key=lambda outcome: outcome.rank)
    )
