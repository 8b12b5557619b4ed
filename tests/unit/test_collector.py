"""The garbage collector rests while a large package is imported, and works afterwards."""

import gc
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from emberflow._collector import collector_paused, pause_collector_for_import

PACKAGE = "package_that_looks_at_the_collector"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    finders = list(sys.meta_path)
    yield
    gc.enable()
    gc.unfreeze()
    sys.meta_path[:] = finders
    sys.modules.pop(PACKAGE, None)


def write(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / f"{PACKAGE}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)


def test_the_collector_rests_during_the_import_and_its_objects_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "import gc\nwas_on = gc.isenabled()\n", monkeypatch)
    frozen = gc.get_freeze_count()
    finders = list(sys.meta_path)
    pause_collector_for_import(PACKAGE)
    assert import_module(PACKAGE).was_on is False
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen
    assert sys.meta_path == finders


def test_an_import_that_fails_leaves_the_collector_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "raise RuntimeError('no such processor')\n", monkeypatch)
    pause_collector_for_import(PACKAGE)
    with pytest.raises(RuntimeError, match="no such processor"):
        import_module(PACKAGE)
    assert gc.isenabled()


def test_a_package_that_is_not_there_is_not_found() -> None:
    pause_collector_for_import(PACKAGE)
    with pytest.raises(ModuleNotFoundError, match=PACKAGE):
        import_module(PACKAGE)


def test_a_package_that_is_here_needs_no_finder() -> None:
    finders = list(sys.meta_path)
    pause_collector_for_import("gc")
    assert sys.meta_path == finders


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()
