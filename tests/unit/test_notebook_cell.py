"""A run in a notebook: a cell that is updated while it goes on, and results that show themselves."""

import dataclasses
import math
import re
import sys
import threading
import xml.etree.ElementTree as ET
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from emberflow._plan import deadlines
from emberflow._record import events as e
from emberflow._record.recorder import Recorder
from emberflow._record.run_state import fold
from emberflow.page.cell import cell_html
from emberflow.page.cluster_cell import cluster_html
from emberflow.page.live_cell import cell_shown, is_notebook
from emberflow.page.plan_cell import plan_html
from emberflow.page.report import RunReport
from emberflow.plan import NodePlan, Plan
from emberflow.result import NodeStatus, Result
from tests.unit.runs_simulated import failed, restarted, started, succeeded

WITHIN = 20.0


@pytest.mark.parametrize("run", [succeeded(), restarted(), failed(), [started()], []])
def test_a_cell_is_well_formed_whatever_is_known(run: Any) -> None:
    text = cell_html(fold(run))
    ET.fromstring(text.replace("<br>", "<br/>"))
    assert "<script" not in text


def test_a_cell_has_the_curves_the_nodes_and_what_to_do() -> None:
    text = cell_html(fold(failed()))
    assert text.count("<polyline") == 2
    assert "worker 1" in text
    assert "ValueError: loss is nan &lt;b&gt;here" in text
    assert "What to do:" in text
    many = cell_html(fold(succeeded(nodes=50, steps=5)))
    assert "and 40 more nodes" in many
    assert "50 of 50 nodes up" in many


def reported(*values: dict[str, float], kind: str = "run", rank: int = 0) -> list[e.Event]:
    events: list[e.Event] = [started(kind=kind)]
    return events + [
        e.MetricsReported(t=1.0 + step, rank=rank, step=step, values=each) for step, each in enumerate(values)
    ]


def test_a_series_of_one_point_is_a_dot() -> None:
    text = cell_html(fold(reported({"loss": 2.0}, {"loss": 1.0, "val_loss": 1.5})))
    assert text.count("<polyline") == text.count("<circle") == 1


def test_the_loss_comes_first_whatever_came_first() -> None:
    text = cell_html(fold(reported({"auc": 0.5, "precision": 0.5, "loss": 1.0})))
    assert re.findall(r"<b>(\w+)</b>", text) == ["loss", "auc"]


def test_training_and_validation_have_a_key_in_their_colours() -> None:
    text = cell_html(fold(reported({"loss": 2.0, "val_loss": 2.5}, {"loss": 1.0, "val_loss": math.inf})))
    found = re.findall(r'color:(#\w+)">●</span> <span[^>]*>(\w+) ([\w.]+)<', text)
    assert found == [("#e0520a", "training", "1"), ("#1971c2", "validation", "inf")]
    assert 'stroke="#e0520a"' in text
    assert 'fill="#1971c2"' in text


def test_a_restart_is_marked_at_its_time() -> None:
    text = cell_html(fold(restarted()))
    places = [float(x) for x in re.findall(r'd="M([\d.]+) [^"]*" stroke="#888" stroke-dasharray', text)]
    assert len(places) == text.count(">restart<") == 2  # of loss and accuracy
    assert 180 < places[0] < 240  # 31 s, between 4 s and 58 s
    assert ">restart<" not in cell_html(fold(succeeded()))


def test_figures_of_an_axis_have_room_and_small_memory_is_told() -> None:
    events = [*reported({"loss": 0.00503}, {"loss": -1.25e-05})]
    text = cell_html(fold([*events, e.NodeUsed(t=2.0, rank=0, memory=31_000_000)]))
    end = re.search(r'<text x="(\d+)" y="\d+" text-anchor="end"[^>]*>-1.25e-05<', text)
    assert end is not None
    assert int(end[1]) >= 9 * 5.6  # as wide as nine digits of this size
    assert "31 MB" in text


def test_parallel_tasks_are_all_drawn_and_the_best_is_named() -> None:
    events = reported({"loss": 2.0}, {"loss": 1.0}, kind="parallel", rank=0)
    events += reported({"loss": 2.0}, {"loss": 0.5}, rank=3)[1:]
    text = cell_html(fold(events))
    assert text.count("<polyline") == 2
    assert "training 0.5 (best: task 3)" in text


def test_a_run_that_waits_says_for_what() -> None:
    why = "waits for 2 of 2 task slots; run mnist 3f2a holds 2"
    assert why in cell_html(fold([started(), e.RunWaits(t=0.1, why=why)]))


def test_a_result_shows_itself_and_one_made_by_hand_is_text() -> None:
    result = Result(value=1, reports=(), seconds=1.0, _report=RunReport(fold(succeeded())))
    assert "<svg" in (result._repr_html_() or "")
    assert Result(value=1, reports=(), seconds=1.0)._repr_html_() is None


def node(rank: int = 0, **known: Any) -> NodeStatus:
    return NodeStatus(**({"rank": rank, "role": "worker", "index": rank, "host": "h", "state": "up"} | known))


def test_a_cluster_has_its_curves_and_what_each_node_takes() -> None:
    nodes = [node(0, role="chief", rows_taken=1200), node(1, state="lost", rows_taken=7, tasks_held=3)]
    text = cluster_html(fold(succeeded()), nodes, is_up=True)
    ET.fromstring(text)
    assert "<polyline" in text
    assert re.search("● up.*2 nodes · 1,207 rows taken", text)
    assert text.index(">worker 1<") < text.index(">chief 0<")  # what is wrong comes first
    assert "● stopped" in cluster_html(fold(succeeded()), nodes, is_up=False)
    over = cluster_html(fold(failed()), nodes, is_up=False)
    assert "● failed" in over
    assert "What to do:" in over
    assert "and 40 more nodes" in cluster_html(fold([]), [node(rank) for rank in range(50)], is_up=True)


EVIL = "<img src=x onerror=alert(1)>&"


def test_no_text_of_a_cell_becomes_markup() -> None:
    begun = e.RunStarted(t=0.0, run_id=EVIL, kind="run", name=EVIL, at=0.0)
    planned = e.RunPlanned(t=0.0, nodes=(e.PlannedNode(rank=0, role=EVIL, index=0),), plan={})
    metrics = e.MetricsReported(t=1.0, rank=0, step=0, values={EVIL: 1.0})
    ended = e.NodeEnded(t=2.0, rank=0, ending="raised", problem=EVIL, host=EVIL, seconds=1.0)
    failure = e.RunFailure(kind=EVIL, problem=EVIL, fix=EVIL)
    state = fold([begun, planned, metrics, ended, e.RunEnded(t=3.0, failure=failure)])
    odd = node(role=EVIL, host=EVIL, state=EVIL, log_tail=(EVIL,))
    shown = [
        cell_html(state),
        cluster_html(state, [odd], is_up=False),
        plan_html(EVIL, [(EVIL, EVIL, EVIL, EVIL)], {EVIL: EVIL}, shown=10),
    ]
    for text in shown:
        ET.fromstring(text.replace("<br>", "<br/>"))
        assert "<img" not in text
        assert "&lt;img src=x onerror=alert(1)&gt;&amp;" in text


def plan_of(nodes: int = 2, **known: Any) -> Plan:
    named = tuple(
        NodePlan(rank=rank, role="worker", index=rank, gpus=0, calls_function=True, share="1/2")
        for rank in range(nodes)
    )
    facts: dict[str, Any] = {
        "name": "train",
        "nodes": named,
        "master": "local[2]",
        "slots": 2,
        "strategy": "data_parallel",
        "transport": "ring",
        "launch": "barrier",
        "data": {"train": "x array<float>, y float"},
        "cache": True,
        "encrypt": False,
        "preload": ("keras",),
        "max_restarts": 0,
        "checkpoint_dir": None,
    }
    return Plan(**(facts | known))


def test_a_plan_is_text_and_a_table() -> None:
    plan = plan_of()
    text, shown = str(plan), plan._repr_html_()
    assert text.splitlines()[:2] == [
        "train: planned, nothing has started",
        "  worker 0: calls your function, 1/2 of the rows",
    ]
    ET.fromstring(shown)
    assert re.search("● planned.*2 nodes · nothing has started", shown)
    for said in (text, shown.replace("&lt;", "<").replace("&gt;", ">")):
        assert "2 needed, 2 there" in said
        assert "x array<float>, y float" in said
    assert "GPUs" not in shown  # a column without anything in it


def test_a_plan_says_what_cannot_be_known_and_what_is_chosen() -> None:
    ps = NodePlan(rank=0, role="ps", index=0, gpus=0, calls_function=False, share="")
    text = str(plan_of(nodes=30, slots=None, master="", encrypt=True, max_restarts=2, checkpoint_dir="/c"))
    assert "and 20 more nodes" in text
    for said in ("Spark Connect", "cannot be counted", "all traffic", "restarted up to 2 times", "/c"):
        assert said in text
    assert "ps 0: serves the model's variables\n" in str(dataclasses.replace(plan_of(), nodes=(ps,)))


class Notebook:
    """A kernel whose cells only remember what they show."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.changed = threading.Event()
        self.module = ModuleType("IPython")
        self.module.get_ipython = lambda: SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
        self.display = ModuleType("IPython.display")
        self.display.HTML = str  # type: ignore[attr-defined]
        self.display.display = self.show  # type: ignore[attr-defined]

    def show(self, text: str, display_id: bool) -> Any:
        assert display_id
        self.update(text)
        return SimpleNamespace(update=self.update)

    def update(self, text: str) -> None:
        self.shown.append(text)
        if len(self.shown) > 1:
            self.changed.set()


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", made.module)
    monkeypatch.setitem(sys.modules, "IPython.display", made.display)
    monkeypatch.setattr(deadlines, "CELL_INTERVAL", 0.01)
    return made


def test_a_run_is_followed_in_its_cell_and_its_last_state_stays(notebook: Notebook) -> None:
    recorder = Recorder()
    with cell_shown(recorder, wanted=True):
        recorder.emit(e.RunStarted, run_id="0a1b", kind="run", name="train", at=0.0)
        assert notebook.changed.wait(WITHIN)
        recorder.emit(e.RunEnded)
    assert re.search("train.*● succeeded", notebook.shown[-1])
    assert len(set(notebook.shown)) == len(notebook.shown)


def test_a_quiet_run_and_a_program_have_no_cell(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    with cell_shown(Recorder(), wanted=False):
        pass
    assert notebook.shown == []
    monkeypatch.delitem(sys.modules, "IPython")
    assert not is_notebook()
