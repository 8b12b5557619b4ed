"""The everyday models of examples/models: each learns what there is to learn, in the session of a plain program."""

import runpy
import sys
from typing import Any

import pytest

from tests.conftest import ROOT

EXAMPLES = sorted(path.name for path in (ROOT / "examples" / "models").glob("*.py"))
QUICK = "wide_and_deep.py"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == QUICK else pytest.mark.full) for name in EXAMPLES]
)
def test_an_everyday_model_learns(
    name: str, spark_local: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--tiny"])
    runpy.run_path(str(ROOT / "examples" / "models" / name), run_name="__main__")
    said = capsys.readouterr().out
    assert float(said.split()[-1]) >= 0.95, said
