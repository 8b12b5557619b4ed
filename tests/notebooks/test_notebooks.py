"""The notebooks, as a reader runs them: in a kernel of their own, from the first cell to the last."""

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT, environment_with_every_package
from tests.sessions import Sessions

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_TIMEOUT = 180
WHERE = "import os, sys\n(sys.executable, os.environ['SPARK_LOCAL_IP'])"
QUICK = {"any_function"}  # the others are long enough for `make test-full`
# What the outputs of a notebook must have, beside what Spark and Python print.
EXPECTED = {
    "quickstart": ("Run page: http://127.0.0.1:", "● succeeded", "val_loss", "test digits are read right"),
    "mnist_pipeline": ("● succeeded", "of the test digits are right", "|label|prediction|"),
    "any_function": (
        "● planned",
        "2 needed, 2 there",
        "● succeeded",
        "ValueError: the loss is not a number",
        "worker 1 of 2",
    ),
    "tfrecord": ("label=0", "pixels: array", "● succeeded", "[300, 300]"),
    "streaming": ("● up", "rows taken", "day 2: 200 rows"),
}


def named(path: Path) -> Any:
    marks = [] if path.stem in QUICK else [pytest.mark.full]
    return pytest.param(path, marks=marks, id=path.stem)


def outputs_of(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def shown_in(notebook: Any, kind: str) -> list[str]:
    return [output["data"][kind] for output in outputs_of(notebook) if kind in output.get("data", {})]


def everything_said(notebook: Any) -> str:
    printed = [output["text"] for output in outputs_of(notebook) if output["output_type"] == "stream"]
    return "\n".join([*printed, *shown_in(notebook, "text/plain"), *shown_in(notebook, "text/html")])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; what Jupyter and IPython keep for a user goes elsewhere."""
    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    working = tmp_path / "working"
    working.mkdir()
    return working


@pytest.mark.parametrize("path", [named(path) for path in NOTEBOOKS])
def test_a_notebook_runs_and_leaves_nothing(
    path: Path, folder: Path, sessions: Sessions, nothing_left: None
) -> None:
    sessions.close()  # two cores are few for two Sparks
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(WHERE))
    environment = {
        key: value for key, value in environment_with_every_package().items() if key != "EMBERFLOW_MNIST"
    }
    client = NotebookClient(notebook, timeout=CELL_TIMEOUT, resources={"metadata": {"path": str(folder)}})
    client.execute(env=environment)  # raises what a cell raises

    assert not [output for output in outputs_of(notebook) if output["output_type"] == "error"]
    said = everything_said(notebook)
    for text in EXPECTED[path.stem]:
        assert text in said, said[-5000:]
    assert shown_in(notebook, "image/png"), "people would rather look"
    assert any("<svg" in html for html in shown_in(notebook, "text/html")), "no run is shown"
    assert repr((sys.executable, "127.0.0.1")) in said
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_what_a_run_adds(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[] for _ in code]
    assert {cell.execution_count for cell in code} == {None}
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.cells[0].source.startswith("# ")
    assert re.search(r"^(spark\.stop|held\.close)\(\)", code[-1].source, re.MULTILINE)


def test_every_notebook_is_in_the_table_and_in_this_test() -> None:
    table = (ROOT / "notebooks" / "README.md").read_text()
    assert [path.name for path in NOTEBOOKS if f"]({path.name}) | " not in table] == []
    assert [path.stem for path in NOTEBOOKS] == sorted(EXPECTED)


def test_links_between_notebooks_lead_somewhere() -> None:
    for path in NOTEBOOKS:
        sources = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        missing = [
            link for link in re.findall(r"\]\(([^)#:]+)\)", sources) if not (path.parent / link).exists()
        ]
        assert missing == [], path.name
