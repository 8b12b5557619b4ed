"""The program of `emberflow train`: read on the driver, run in the nodes, unless its file depends on the driver."""

import pickle
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emberflow.cli.program import ProgramModel, load_builder
from emberflow.errors import ConfigError

NAME = "program_of_this_test"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    sys.modules.pop(NAME, None)


def builder_of(folder: Path, text: str) -> Any:
    path = folder / f"{NAME}.py"
    path.write_text(text)
    return load_builder(path)


def test_a_plain_file_is_run_in_the_node_only(tmp_path: Path) -> None:
    text = '"""Doc."""\nimport package_that_is_not_here\nWIDTH = [3, 4]\n\n\ndef build_model():\n    return WIDTH\n'
    builder = builder_of(tmp_path, text)
    assert isinstance(builder, ProgramModel)
    assert NAME not in sys.modules
    with pytest.raises(ModuleNotFoundError, match="package_that_is_not_here"):
        builder()


def test_the_node_builds_from_the_text_alone_and_shows_it_in_tracebacks(tmp_path: Path) -> None:
    text = "class Own:\n    pass\n\n\ndef build_model():\n    return Own(), 1 / 0\n"
    sent = pickle.dumps(builder_of(tmp_path, text))
    (tmp_path / f"{NAME}.py").unlink()
    try:
        pickle.loads(sent)()
    except ZeroDivisionError:
        assert "return Own(), 1 / 0" in traceback.format_exc()
    assert sys.modules[NAME].Own.__module__ == NAME


@pytest.mark.parametrize(
    "text",
    ["WIDTHS = open(__file__).read()\n", "import beside\n", "if True:\n    x = 1\n", "print('hello')\n"],
)
def test_a_file_that_may_depend_on_the_driver_is_run_there(tmp_path: Path, text: str) -> None:
    (tmp_path / "beside.py").touch()
    sys.path.insert(0, str(tmp_path))
    builder = builder_of(tmp_path, text + "def build_model():\n    return 7\n")
    sys.path.remove(str(tmp_path))
    assert not isinstance(builder, ProgramModel)
    assert builder() == 7


@pytest.mark.parametrize("text", ["def build():\n    pass\n", "print(1)\ndef build():\n    pass\n"])
def test_a_file_without_the_function_is_refused_with_what_it_has(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"must define a function `build_model`. Received: \['build'\]"):
        builder_of(tmp_path, text)
