"""What must hold for records on any remote storage: real runs write them, and the commands read them elsewhere."""

import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow import storage
from emberflow._plan import deadlines
from emberflow._record import record_files
from emberflow._record.record_files import RecordFile, read_record, records_in
from emberflow._record.run_state import RunState
from emberflow.errors import NodeFailedError, StorageError
from tests.held_commands import EMBERFLOW, running_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHIN = 60.0


def check_records(spark: "SparkSession", url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record two runs there, look at one of them while it goes on, and at both by each command."""
    monkeypatch.setattr(deadlines, "REMOTE_RECORD_INTERVAL", 0.3)
    monkeypatch.setattr(record_files, "SEGMENT_BYTES", 2000)

    def train(ctx: Any) -> int:
        print("hello from", ctx.rank, flush=True)
        for step in range(30):
            ctx.report(step=step, loss=1.0 / (step + 1))
        while not (tmp_path / "seen").exists():
            ctx.wait_until_over(0.05)
        return int(ctx.rank)

    def fail(ctx: Any) -> None:
        raise ValueError("loss is nan")

    options: dict[str, Any] = {"workers": 2, "spark": spark, "verbose": False, "record": url}
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(ef.run, train, **options)
        try:
            going_on = await_run(url)
        finally:
            (tmp_path / "seen").touch()
        done = run.result(WITHIN)
    assert [node.state for node in going_on.nodes.values()] == ["running", "running"]
    with pytest.raises(NodeFailedError):
        ef.run(fail, **options)
    assert done.record is not None
    assert sum("events-" in each for each in storage.list_folder(done.record)) > 1, "one segment only"
    state = read_record(done.record)
    assert (state.status, len(state.series[0, 0, "loss"].points)) == ("succeeded", 30)
    assert [line[2] for line in state.logs[1].lines] == ["hello from 1"]
    check_commands(url, state, tmp_path)
    check_refusals(url, done.record)


def await_run(url: str) -> RunState:
    """Return the state of the run there once its curve can be read."""
    end = time.monotonic() + WITHIN
    while True:
        try:
            state = read_record(records_in(url)[0])
        except StorageError:  # it has not begun
            state = RunState()
        if state.series and state.logs.keys() >= {0, 1}:
            return state
        assert time.monotonic() < end, state.changes()
        time.sleep(0.2)


def check_commands(url: str, done: RunState, tmp_path: Path) -> None:
    """Each command, in a process that has no session, shows the same."""
    listed = emberflow("runs", url)
    assert re.search(rf"{done.run_id} .* train +succeeded", listed.stdout), listed
    assert re.search(r"fail +failed", listed.stdout), listed
    compared = emberflow("runs", url, "--compare", done.run_id, "last")
    assert re.search(r"function +train +fail", compared.stdout), compared
    report = storage.join(url, "report.html")
    for target in (str(tmp_path / "run.html"), report):  # beside the runs too
        assert emberflow("runs", url, "--html", target).returncode == 0
    assert "ValueError: loss is nan" in (tmp_path / "run.html").read_text()
    assert storage.read_bytes(report) == (tmp_path / "run.html").read_bytes()
    with running_command("ui", url) as (process, said):
        found = re.search(r"(http://\S+)/\?token=(\S+)", said)
        assert found is not None, said
        events = f"{found[1]}/events?runs={done.run_id}"
        with urllib.request.urlopen(f"{events}&token={found[2]}", timeout=WITHIN) as answer:
            assert "hello from 1" in first_event(answer)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{events}&token=wrong", timeout=WITHIN)
        process.terminate()


def first_event(answer: Any) -> str:
    """Return what a browser is told first: all of the run."""
    lines = iter(answer.readline, b"")
    return str(next(line.decode() for line in lines if b"hello" in line))


def check_refusals(url: str, record: str) -> None:
    """A folder without runs, and a second writer, get a clear answer."""
    empty = emberflow("runs", storage.join(url, "nothing"))
    assert empty.returncode == 2, empty
    assert "must be a folder of recorded runs" in empty.stdout + empty.stderr
    with pytest.raises(StorageError, match="A record has one writer"):
        RecordFile(record)
    with pytest.raises(StorageError, match="which is the record of one run"):
        RecordFile(storage.join(record, "20260101-000000-abcd"))


def emberflow(*words: str) -> "subprocess.CompletedProcess[str]":
    wide = os.environ | {"COLUMNS": "300"}
    return subprocess.run([*EMBERFLOW, *words], capture_output=True, text=True, env=wide, timeout=WITHIN)
