"""The record of a run: written in whole lines, bounded, read as far as it goes, folded into one state."""

import json
import logging
import math
import pickle
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from emberflow import storage
from emberflow._plan import deadlines
from emberflow._record import events as e
from emberflow._record import record_bounds, record_files
from emberflow._record.lines import KINDS, read_lines, to_line
from emberflow._record.record_bounds import RecordBounds
from emberflow._record.record_files import RecordFile, RecordReader, name_of_record, read_record, records_in
from emberflow._record.record_writer import RecordWriter
from emberflow._record.recorder import Recorder
from emberflow._record.run_state import RunState, fold
from emberflow._record.run_summary import differences, metrics_in_words, summary_of
from emberflow._record.thinning import Thinner
from emberflow.errors import ConfigError, StorageError
from emberflow.page.report import RunReport, write_report
from emberflow.page.sources import brief
from emberflow.result import Result
from tests.unit.runs_simulated import failed, planned, restarted, start, started, succeeded

NAME = "20260101-000000-0a1b2c3d"


def written(folder: Path, run_id: str, events: Any) -> str:
    """Record events as the driver does; return where."""
    path = str(folder / name_of_record(run_id, 1_760_000_000.0))
    writer = RecordWriter(path)
    for event in events:
        writer.put(event)
    writer.close()
    return path


@pytest.mark.parametrize("event", [*[*failed(), *restarted()][::7], e.StillRunning(t=1.0)])
def test_an_event_comes_out_of_its_line_as_it_went_in(event: e.Event) -> None:
    line = to_line(event)
    assert "\n" not in line
    (read,) = read_lines([line])
    assert type(read) is type(event)
    assert to_line(read) == line


def test_every_kind_of_event_has_a_name() -> None:
    assert KINDS["run_started"] is e.RunStarted
    assert len(KINDS) == 16


def test_lines_of_another_version_or_cut_ones_are_skipped() -> None:
    good = to_line(e.NodeReady(t=1.0, rank=0))
    lines = [
        good,
        good[:10],
        '{"event":"from_the_future","t":1}',
        "[]",
        "3",
        "",
        '{"event":"node_ready","t":1}',
    ]
    assert list(read_lines([*lines, good])) == [e.NodeReady(t=1.0, rank=0)] * 2


def test_a_run_is_folded_into_its_state() -> None:
    state = fold(succeeded())
    assert (state.status, state.attempt, state.run_id) == ("succeeded", 0, "0a1b2c3d")
    assert [phase["name"] for phase in state.start.phases] == [
        "planned", "slots", "executors", "nodes", "rows", "first step",
    ]  # fmt: skip
    assert {node.state for node in state.nodes.values()} == {"returned"}
    assert state.nodes[1].host == "host-1"
    assert state.nodes[1].memory_peak > 1 << 30
    assert len(state.series[0, 0, "loss"].points) == 600
    assert len(state.series[0, 0, "val_loss"].points) == 6
    assert summary_of(state).metrics["loss"] < 0.2
    assert state.progress == pytest.approx(599 / 600)


def test_a_run_that_waits_for_slots_says_for_what_and_how_long() -> None:
    state = fold([started(), e.RunWaits(t=0.1, why="waits for 2 task slots; Spark has 0")])
    assert state.head()["waiting"] == "waits for 2 task slots; Spark has 0"
    state.apply(planned(2, t=0.4))
    assert state.head()["waiting"] is None
    seen = state.version
    state.apply(e.RunWaits(t=0.5, why="waits for 2 of 2 task slots; run mnist 3f2a holds 2"))
    assert state.changes(seen)["head"]["waiting"] == "waits for 2 of 2 task slots; run mnist 3f2a holds 2"
    for event in start(2, t=9.0):
        state.apply(event)
    assert state.head()["waiting"] is None
    assert [(each["name"], each["t"]) for each in state.start.phases][:3] == [
        ("planned", 0.4), ("slots", 9.0), ("executors", 10.5),
    ]  # fmt: skip
    state.apply(e.AttemptFailed(t=20.0, attempt=0, problem="lost", is_restarted=True))
    state.apply(e.RunWaits(t=20.1, why="waits for 2 task slots; Spark has 1"))
    for event in start(2, attempt=1, t=30.0):
        state.apply(event)
    assert state.head()["waiting"] is None
    assert [each["name"] for each in state.start.phases if each["attempt"] == 1] == [
        "executors", "nodes", "rows",
    ]  # fmt: skip


def test_a_record_from_before_slots_were_told_is_read() -> None:
    events = [each for each in succeeded() if not isinstance(each, e.SlotsHeld)]
    assert [phase["name"] for phase in fold(events).start.phases] == [
        "planned", "executors", "nodes", "rows", "first step",
    ]  # fmt: skip


def test_a_loss_and_a_restart_are_marked_and_nodes_begin_anew() -> None:
    events = list(restarted())
    before = fold(events[: next(i for i, event in enumerate(events) if isinstance(event, e.AttemptFailed))])
    assert (before.nodes[1].state, before.nodes[0].state) == ("lost", "running")
    state = fold(events)
    assert [(mark["kind"], mark["rank"], mark["attempt"]) for mark in state.marks] == [
        ("loss", 1, 0),
        ("restart", 1, 0),
    ]
    assert "SIGKILL" in state.marks[0]["text"]
    assert (state.attempt, state.status) == (1, "running")
    assert {node.state for node in state.nodes.values()} == {"running"}
    assert {key[0] for key in state.series} == {0, 1}


def test_the_failure_is_that_of_the_caller() -> None:
    state = fold(failed())
    assert state.status == "failed"
    assert state.failure is not None
    assert "loss is nan" in state.failure.traceback
    assert state.head()["failure"]["fix"].startswith("Correct the function")


def test_changes_since_a_version_are_all_that_is_new() -> None:
    events = list(succeeded())
    state = fold(events[:300])
    seen = state.version
    for event in events[300:310]:
        state.apply(event)
    new = state.changes(seen)
    assert new["version"] == 310
    assert 0 < sum(len(series["points"]) for series in new["series"]) < 60
    assert state.changes(310)["nodes"] == state.changes(310)["series"] == state.changes(310)["logs"] == []
    json.dumps(new, allow_nan=False)


@pytest.mark.parametrize(("value", "shown"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_a_loss_that_is_no_number_is_sent_and_listed_as_text(
    value: float, shown: str, tmp_path: Path
) -> None:
    options = {"workers": 2, "start_timeout": value}
    events = [
        started(options=options),
        e.MetricsReported(t=1.0, rank=0, step=1, values={"loss": value, "accuracy": 0.5}),
    ]
    for state in (fold(events), read_record(written(tmp_path, "0a1b2c3d", events))):
        loss, _ = state.changes()["series"]
        assert loss["points"] == [(1, 1.0, None, shown)]
        assert brief(state)["metrics"] == {"loss": shown, "accuracy": 0.5}
        assert metrics_in_words(summary_of(state)) == f"loss {shown}  accuracy 0.5"
        json.dumps([state.changes(), brief(state)], allow_nan=False)
        write_report([state], str(tmp_path / "run.html"))


def test_parallel_tasks_are_summed_up_by_the_best_of_them() -> None:
    tasks = tuple(e.PlannedNode(rank=task, role="task", index=task) for task in range(4))
    events: list[e.Event] = [started(kind="parallel"), e.RunPlanned(t=0.1, nodes=tasks)]
    ends = [(0.9, 0.5, 30.0), (math.nan, math.inf, math.nan), (0.2, 0.7, 10.0), (0.4, 0.9, 20.0)]
    for rank, (loss, accuracy, error) in enumerate(ends):
        last = {"loss": loss, "accuracy": accuracy, "Error": error}
        events += [e.MetricsReported(t=1.0 + rank, rank=rank, step=1, values={"loss": 0.1, "accuracy": 1.0})]
        events += [e.MetricsReported(t=2.0 + rank, rank=rank, step=2, values=last)]
    state = fold(events)
    assert state.head()["best"] == [
        {"name": "loss", "value": 0.2, "rank": 2},
        {"name": "accuracy", "value": 0.9, "rank": 3},
        {"name": "Error", "value": 10.0, "rank": 2},
    ]
    listed = brief(state)
    assert listed["metrics"] == {"loss": 0.2, "accuracy": 0.9, "Error": 10.0}
    assert listed["best_ranks"] == {"loss": 2, "accuracy": 3, "Error": 2}
    assert metrics_in_words(summary_of(state)).startswith(
        "loss 0.2 (best: task 2)  accuracy 0.9 (best: task 3)"
    )
    seen = state.version
    state.apply(e.MetricsReported(t=9.0, rank=1, step=2, values={"loss": 0.1}))
    assert state.changes(seen)["head"]["best"][0] == {"name": "loss", "value": 0.1, "rank": 1}
    assert fold(succeeded()).head()["best"] == []


def test_parallel_tasks_that_all_diverged_have_no_number() -> None:
    events = [started(kind="parallel"), e.MetricsReported(t=1.0, rank=3, step=1, values={"loss": math.nan})]
    assert fold(events).head()["best"] == [{"name": "loss", "value": "nan", "rank": 3}]


def test_a_long_series_keeps_its_first_and_last_point_in_memory() -> None:
    state = RunState()
    for step in range(20_000):
        state.apply(e.MetricsReported(t=float(step), rank=0, step=step, values={"loss": 1.0}))
    points = state.series[0, 0, "loss"].points
    assert 2000 < len(points) <= 4000
    assert (points[0][1], points[-1][1]) == (0, 19_999)
    gaps = {b[1] - a[1] for a, b in pairwise(points[:-1])}  # type: ignore[operator]
    assert len(gaps) == 1


def test_a_thinner_keeps_a_logarithm_of_a_long_series() -> None:
    thinner: Thinner[int] = Thinner(limit=100)
    kept = [n for n in range(100_000) if thinner.takes("loss", n)]
    assert kept[:100] == list(range(100))
    assert len(kept) < 1200
    assert thinner.last_left_out() == [99_999]
    assert thinner.last_left_out() == []


def test_many_series_share_the_room() -> None:
    thinner: Thinner[int] = Thinner(limit=1000, total=1000)
    kept = sum(thinner.takes(rank, n) for n in range(1000) for rank in range(500))
    assert kept < 500 * 20


def test_a_record_has_the_first_output_of_a_node_and_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_bounds, "LEAST_LOG_BYTES", 100)
    bounds = RecordBounds(nodes=1_000_000)
    lines = [e.LinesPrinted(t=float(n), rank=0, text=f"line {n:04}") for n in range(1000)]
    kept = [each for line in lines for each in bounds.kept(line)]
    assert len(kept) == 11
    *tail, end = bounds.kept(e.NodeEnded(t=1000.0, rank=0, ending="returned"))
    assert isinstance(end, e.NodeEnded)
    (last,) = tail
    assert isinstance(last, e.LinesPrinted)
    assert last.text.endswith("line 0999")
    assert last.left_out == 1000 - 11 - record_bounds.TAIL_LINES
    shown = fold([*kept, last]).logs[0].lines
    assert any("789 lines are not in the record" in line[2] for line in shown)


def test_what_was_thinned_last_is_there_at_the_end() -> None:
    bounds = RecordBounds()
    for step in range(5000):
        last = e.MetricsReported(t=float(step), rank=0, step=step, values={"loss": 1.0})
        kept = list(bounds.kept(last))
    assert kept == []
    assert next(iter(bounds.kept(e.RunEnded(t=5000.0)))) == last


def reported(steps: range, t: float) -> list[e.Event]:
    """Return as many reports of a loss, each followed by the rows that were taken."""
    events: list[e.Event] = []
    for step in steps:
        t += 0.01
        events.append(e.MetricsReported(t=t, rank=0, step=step, values={"loss": 1 / (step + 1)}))
        events.append(
            e.RowsFed(t=t, rank=0, rows=10 * step, rows_per_second=9.0, waiting_for="sink", is_training=True)
        )
    return events


@pytest.mark.parametrize("again", [0, 1, 2, 1501])
def test_a_long_attempt_and_its_restart_are_read_as_they_were(tmp_path: Path, again: int) -> None:
    lost = e.AttemptFailed(t=30.0, attempt=0, problem="Worker 1 was lost", rank=1, is_restarted=True)
    events = [started(), planned(2), *start(2), *reported(range(1502), 4.0), lost]
    events += [*start(2, attempt=1, t=31.0), *reported(range(1000, 1000 + again), 35.0)]
    events += [e.RunEnded(t=99.0, failure=e.RunFailure(kind="NodeLostError", problem="lost again"))]
    live, read = fold(events), read_record(written(tmp_path, "0a1b2c3d", events))
    assert len(live.series[0, 0, "loss"].points) == 1502 > len(read.series[0, 0, "loss"].points)
    assert read.head() == live.head()
    assert [each.as_dict() for each in read.nodes.values()] == [
        each.as_dict() for each in live.nodes.values()
    ]
    assert _ends(read) == _ends(live)


def _ends(state: RunState) -> dict[Any, Any]:
    """Return the first and the last point of each series."""
    shown = {key: series.since(0)["points"] for key, series in state.series.items()}
    return {key: (points[0], points[-1]) for key, points in shown.items()}


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = written(tmp_path / "new" / "folder", "0a1b2c3d", succeeded())
    assert read_record(path).head() == fold(succeeded()).head()
    assert records_in(str(tmp_path / "new" / "folder")) == [path]
    assert records_in(path) == [path]


def test_a_record_that_is_cut_in_the_middle_of_a_line_is_read_up_to_there(tmp_path: Path) -> None:
    path = written(tmp_path, "0a1b2c3d", succeeded())
    file = Path(path, "events-00000.jsonl")
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    state = read_record(path)
    assert 100 < state.version < fold(succeeded()).version
    assert state.status == "running"
    assert summary_of(state).status == "cut"
    assert summary_of(state, now=1_760_000_000.0 + state.t + 5).status == "running"


def test_a_reader_follows_a_record_and_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    record = RecordFile(str(tmp_path / NAME))
    reader = RecordReader(record.folder)
    assert not reader.look()
    line = to_line(started())
    assert record._fd is not None
    record.write([line])
    assert reader.look()
    with Path(record.folder, "events-00000.jsonl").open("a") as file:
        file.write(to_line(e.NodeReady(t=1.0, rank=0))[:15])
        file.flush()
        assert not reader.look()
        file.write(to_line(e.NodeReady(t=1.0, rank=0))[15:] + "\n")
    assert reader.look()
    assert reader.state.version == 2
    record.close()


def test_where_a_store_cannot_append_full_segments_follow_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_files, "SEGMENT_BYTES", 2000)
    folder = f"memory://runs-of-a-test/{NAME}"
    record = RecordFile(folder)
    reader = RecordReader(folder)
    events = list(succeeded(steps=50))
    for event in events:
        record.write([to_line(event)])
        if len(events) % 3 == 0:
            reader.look()
    names = [name.rpartition("/")[2] for name in storage.list_folder(folder)]
    segments = [name for name in names if name.startswith("events-")]
    assert len(segments) > 3
    assert segments[0] == "events-00000.jsonl"
    reader.look()
    assert reader.state.head() == read_record(folder).head() == fold(events).head()


@pytest.mark.parametrize("base", ["", "memory://two-writers/"])
def test_a_second_writer_of_one_record_is_refused(tmp_path: Path, base: str) -> None:
    folder = f"{base or tmp_path}/{NAME}"
    RecordFile(folder).write([to_line(started())])
    with pytest.raises(StorageError, match="one writer") as caught:
        RecordFile(folder)
    assert "name of its own" in caught.value.fix


def test_a_record_is_no_folder_of_runs(tmp_path: Path) -> None:
    path = written(tmp_path, "0a1b2c3d", succeeded(steps=3))
    with pytest.raises(StorageError, match="folder of runs") as caught:
        RecordFile(f"{path}/{NAME}")
    assert str(tmp_path) in caught.value.fix


def test_a_path_without_runs_is_a_clear_answer(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such folder, or an empty one"):
        records_in(str(tmp_path / "missing"))
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(StorageError, match="without runs") as caught:
        records_in(str(tmp_path))
    assert "record=" in caught.value.fix


def test_parallel_tasks_begin_and_end_one_by_one_and_share_no_start() -> None:
    tasks = tuple(e.PlannedNode(rank=task, role="task", index=task) for task in range(3))
    events: list[e.Event] = [
        started(kind="parallel"),
        e.RunPlanned(t=0.1, nodes=tasks),
        e.AttemptStarted(t=0.1, attempt=0),
        e.NodeJoined(t=1.0, rank=0, host="a"),
        e.NodeReady(t=1.5, rank=0),
        e.NodeJoined(t=1.6, rank=1, host="b"),
    ]
    state = fold(events)
    assert [node.state for node in state.nodes.values()] == ["running", "starting", "waiting"]
    assert (state.status, state.start.phases) == ("running", [])
    state.apply(e.NodeEnded(t=2.0, rank=1, ending="lost", problem="the connection has closed"))
    assert state.nodes[1].state == "lost"
    state.apply(e.NodeJoined(t=3.0, rank=1, host="c"))  # Spark runs it again
    assert (state.nodes[1].state, state.nodes[1].problem, state.nodes[1].host) == ("starting", "", "c")
    assert "the connection has closed" in state.nodes[1].before


def test_a_failed_node_is_shown_as_failed_until_its_new_task_has_joined() -> None:
    state = fold(restarted())
    assert "SIGKILL" in state.nodes[1].before
    events = list(restarted())
    again = next(i for i, each in enumerate(events) if isinstance(each, e.AttemptStarted) and each.attempt)
    state = fold(events[: again + 1])
    assert (state.attempt, state.nodes[1].state, state.nodes[0].state) == (1, "lost", "waiting")
    assert "SIGKILL" in state.nodes[1].problem


def test_a_folder_that_cannot_be_written_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="must be written to a folder of its own"):
        RecordFile(f"{tmp_path}/file/{NAME}")


def test_storage_that_fails_ends_the_record_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "RECORD_INTERVAL", 0.01)
    recorder = Recorder()
    writer = RecordWriter(str(tmp_path / NAME))
    failing = threading.Event()

    def fail(lines: list[str]) -> None:
        failing.set()
        raise StorageError("The disk is full.", fix="Free some.")

    monkeypatch.setattr(writer._file, "write", fail)
    recorder.write_to(writer)
    with caplog.at_level(logging.WARNING, "emberflow"):
        recorder.emit(e.NodeReady, rank=0)
        assert failing.wait(20)
        writer._thread.join(20)
        recorder.emit(e.NodeReady, rank=1)
        recorder.close()
    assert "the run goes on" in caplog.text
    assert recorder.state.version == 2


def test_nobody_waits_for_storage_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emberflow._record.record_writer.QUEUE", 10)
    writer = RecordWriter(str(tmp_path / NAME))
    for event in list(start(100))[:50]:
        writer.put(event)
    writer.put(e.RunEnded(t=9.0))
    writer.close()
    lines = Path(writer.folder, "events-00000.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["left_out"] == 40


def test_a_silent_run_gives_a_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "RECORD_SIGN_OF_LIFE", 0.0)
    writer = RecordWriter(str(tmp_path / NAME))
    writer.close()
    assert "still_running" in Path(writer.folder, "events-00000.jsonl").read_text()


def test_the_report_of_a_result_travels_with_it(tmp_path: Path) -> None:
    result = Result(value=1, reports=(), seconds=1.0, _report=RunReport(fold(succeeded())))
    copy = pickle.loads(pickle.dumps(result))
    copy.report(str(tmp_path / "run.html"))
    assert "0a1b2c3d" in (tmp_path / "run.html").read_text()
    with pytest.raises(ConfigError, match="made by hand"):
        Result(value=1, reports=(), seconds=1.0).report("x.html")


def test_an_attempt_that_starts_in_another_way_has_one_start() -> None:
    state = fold([started(), planned(2), *start(2), *start(2, t=9.0)])
    assert [phase["t"] for phase in state.start.phases if phase["name"] == "executors"] == [10.5]


def test_two_runs_side_by_side() -> None:
    rows = {name: pair for name, *pair in differences(fold(succeeded(nodes=2)), fold(succeeded(nodes=4)))}
    assert rows["workers"] == ["2", "4"]
    assert rows["nodes"] == ["2", "4"]
    assert "strategy" not in rows
    assert rows["state"] == ["succeeded", "succeeded"]
    assert rows["val_accuracy"][0]
