"""A run in a notebook: a cell that is updated while it goes on, and results that show themselves."""

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
from emberflow.page.live_cell import cell_shown, is_notebook
from emberflow.page.report import RunReport
from emberflow.result import Result
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


def test_a_result_shows_itself_and_one_made_by_hand_is_text() -> None:
    result = Result(value=1, reports=(), seconds=1.0, _report=RunReport(fold(succeeded())))
    assert "<svg" in (result._repr_html_() or "")
    assert Result(value=1, reports=(), seconds=1.0)._repr_html_() is None


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
