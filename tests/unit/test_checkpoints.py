"""Checkpoints: atomic, each attempt its own, and late ones of older attempts do no harm."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emberflow import storage
from emberflow._driver.checkpoint_plan import drop_if_empty, plan_checkpoints
from emberflow._node.checkpoints import KEPT, Checkpoints, absent_checkpoints
from emberflow._plan.plan import CheckpointPlan
from emberflow._task.node_setup import check_here
from emberflow.errors import ConfigError, EmberflowError, StorageError
from tests.unit.nodes import plan_of

numbers = itertools.count()


@pytest.fixture(params=["local", "file", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for checkpoints, on disk, on disk as a URL, and in a store that cannot rename."""
    number = next(numbers)
    kinds = {
        "local": str(tmp_path / "shared"),
        "file": f"file://{tmp_path}/shared",
        "memory": f"memory://checkpoints-{number}",
    }
    yield kinds[request.param]
    storage.delete(kinds["memory"])


def text(content: str) -> Callable[[Path], object]:
    return lambda local: (local / "weights").write_text(content)


def chief_of(plan: CheckpointPlan, tmp_path: Path) -> Checkpoints:
    return Checkpoints(plan, tmp_path, writes=True)


def read(checkpoints: Checkpoints) -> tuple[int, str] | None:
    found = checkpoints.latest()
    return None if found is None else (found.step, (found.path / "weights").read_text())


def test_the_first_attempt_starts_from_nothing(folder: str, tmp_path: Path) -> None:
    plan = plan_checkpoints(folder, "run")
    assert plan.resume_from is None
    assert storage.exists(plan.probe)
    assert read(chief_of(plan, tmp_path)) is None
    assert read(Checkpoints(plan, tmp_path)) is None


def test_what_is_saved_is_found_by_this_attempt_and_the_next(folder: str, tmp_path: Path) -> None:
    chief = chief_of(plan_checkpoints(folder, "run"), tmp_path)
    url = chief.save(text("ten"), 10)
    assert read(chief) == (10, "ten")
    following = plan_checkpoints(folder, "run")
    assert url is not None
    assert storage.exists(url)
    for checkpoints in (chief_of(following, tmp_path), Checkpoints(following, tmp_path)):
        assert read(checkpoints) == (10, "ten")
        found = checkpoints.latest()
        assert found is not None
        assert os.fspath(found) == str(found.path)


def test_only_the_chief_saves(folder: str, tmp_path: Path) -> None:
    plan = plan_checkpoints(folder, "run")
    assert Checkpoints(plan, tmp_path).save(text("x"), 1) is None
    assert read(chief_of(plan, tmp_path)) is None


def test_steps_are_ordered_as_numbers(folder: str, tmp_path: Path) -> None:
    chief = chief_of(plan_checkpoints(folder, "run"), tmp_path)
    for step in (9_999_999_999, 999_999_999, 5):
        chief.save(text(str(step)), step)
    assert read(chief) == (9_999_999_999, "9999999999")


def test_the_last_ones_are_kept(folder: str, tmp_path: Path) -> None:
    plan = plan_checkpoints(folder, "run")
    chief = chief_of(plan, tmp_path)
    for step in range(KEPT + 2):
        chief.save(text(str(step)), step)
    names = [path.rpartition("/")[2] for path in storage.list_folder(plan.own)]
    assert names == ["_claim", *(f"step-{step:09d}" for step in range(2, KEPT + 2))]


def test_a_step_can_be_saved_again(folder: str, tmp_path: Path) -> None:
    chief = chief_of(plan_checkpoints(folder, "run"), tmp_path)
    chief.save(text("old"), 1)
    chief.save(text("new"), 1)
    assert read(chief) == (1, "new")


@pytest.mark.fault
def test_a_write_that_fails_leaves_nothing(folder: str, tmp_path: Path) -> None:
    plan = plan_checkpoints(folder, "run")
    chief = chief_of(plan, tmp_path)

    def fail(local: Path) -> None:
        (local / "weights").write_text("half")
        raise OSError("disk full")

    chief.save(text("good"), 1)
    with pytest.raises(OSError, match="disk full"):
        chief.save(fail, 2)
    assert read(chief) == (1, "good")
    assert len(storage.list_folder(plan.own)) == 2
    assert list(tmp_path.glob("tmp*")) == []


def test_a_checkpoint_in_the_making_is_not_seen(folder: str, tmp_path: Path) -> None:
    plan = plan_checkpoints(folder, "run")
    chief_of(plan, tmp_path).save(text("whole"), 1)
    if storage.is_local(folder):
        aside = storage.join(plan.own, ".step-000000002.abc.tmp/weights")
    else:
        aside = storage.join(plan.own, "step-000000002/weights")
        storage.write_bytes(storage.join(plan.own, "step-000000002/_in_progress.json"), b"{}")
    storage.write_bytes(aside, b"half")
    assert read(chief_of(plan, tmp_path)) == (1, "whole")
    assert str(plan_checkpoints(folder, "other").resume_from).endswith("step-000000001")


def test_attempts_that_saved_nothing_have_numbers_of_their_own(folder: str) -> None:
    plans = [plan_checkpoints(folder, "run") for _ in range(3)]
    assert [plan.number for plan in plans] == [0, 1, 2]
    assert len({plan.own for plan in plans}) == 3


def test_a_late_save_of_an_older_attempt_does_no_harm(folder: str, tmp_path: Path) -> None:
    old = chief_of(plan_checkpoints(folder, "run"), tmp_path)
    old.save(text("old 10"), 10)
    plan = plan_checkpoints(folder, "run")
    new, worker = chief_of(plan, tmp_path), Checkpoints(plan, tmp_path)
    for step in (20, 30, 40, 50):  # more than are kept: the one that the new attempt reads must stay
        old.save(text(f"old {step}"), step)
    assert read(new) == read(worker) == (10, "old 10")
    new.save(text("new 11"), 11)
    old.save(text("old 60"), 60)
    assert read(new) == (11, "new 11")
    after = plan_checkpoints(folder, "run")
    assert read(chief_of(after, tmp_path)) == (11, "new 11")


def test_runs_at_the_same_time_do_not_share_a_folder(folder: str, tmp_path: Path) -> None:
    first = plan_checkpoints(folder, "aaaa")
    storage.delete(first.own)  # as if both drivers had looked before either left its claim
    second = plan_checkpoints(folder, "bbbb")
    assert first.number == second.number
    chief_of(first, tmp_path).save(text("first"), 1)
    chief_of(second, tmp_path).save(text("second"), 1)
    assert read(chief_of(first, tmp_path)) == (1, "first")
    assert read(chief_of(second, tmp_path)) == (1, "second")


def test_all_ranks_begin_alike_though_the_chief_is_ahead(folder: str, tmp_path: Path) -> None:
    chief_of(plan_checkpoints(folder, "run"), tmp_path).save(text("before"), 5)
    plan = plan_checkpoints(folder, "run")
    worker = Checkpoints(plan, tmp_path)
    chief_of(plan, tmp_path).save(text("now"), 6)
    assert read(worker) == (5, "before")
    assert read(worker) == (6, "now")
    evaluator = Checkpoints(plan, tmp_path, follows=True)
    assert read(evaluator) == (6, "now")


def test_what_an_evaluator_reads_stays_though_the_chief_drops_it(folder: str, tmp_path: Path) -> None:
    plan = plan_checkpoints(folder, "run")
    chief, evaluator = chief_of(plan, tmp_path), Checkpoints(plan, tmp_path, follows=True)
    chief.save(text("0"), 0)
    held = evaluator.latest()
    assert held is not None
    for step in range(1, KEPT + 2):
        chief.save(text(str(step)), step)
    assert not storage.exists(held.url)
    assert (held.path / "weights").read_text() == "0"
    newer = evaluator.latest()
    assert newer is not None
    assert newer.step == KEPT + 1
    assert not held.path.exists()  # one copy at a time


def test_a_checkpoint_that_goes_while_it_is_copied_gives_way_to_a_newer(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_checkpoints(folder, "run")
    chief, evaluator = chief_of(plan, tmp_path), Checkpoints(plan, tmp_path, follows=True)
    chief.save(text("0"), 0)
    copy, ahead = storage.get_folder, iter(range(1, KEPT + 2))

    def copy_while_the_chief_saves(url: str, local: str | Path) -> None:
        for step in ahead:
            chief.save(text(str(step)), step)
        copy(url, local)

    monkeypatch.setattr(storage, "get_folder", copy_while_the_chief_saves)
    assert read(evaluator) == (KEPT + 1, str(KEPT + 1))


def test_a_start_that_is_gone_is_an_error(folder: str, tmp_path: Path) -> None:
    chief_of(plan_checkpoints(folder, "run"), tmp_path).save(text("x"), 1)
    plan = plan_checkpoints(folder, "run")
    assert plan.resume_from is not None
    storage.delete(plan.resume_from)
    with pytest.raises((StorageError, FileNotFoundError)):
        read(Checkpoints(plan, tmp_path))


def test_an_attempt_without_checkpoints_can_be_dropped(folder: str, tmp_path: Path) -> None:
    empty, full = plan_checkpoints(folder, "run"), plan_checkpoints(folder, "run")
    chief_of(full, tmp_path).save(text("x"), 1)
    drop_if_empty(empty)
    drop_if_empty(full)
    assert not storage.exists(empty.own)
    assert storage.exists(full.own)


@pytest.mark.parametrize("step", [-1, 2.5, "3", None])
def test_a_step_is_a_whole_number(tmp_path: Path, step: object) -> None:
    chief = chief_of(plan_checkpoints(str(tmp_path / "shared"), "run"), tmp_path)
    with pytest.raises(ConfigError, match="`step` must be"):
        chief.save(text("x"), step)  # type: ignore[arg-type]


def test_an_empty_checkpoint_is_refused(tmp_path: Path) -> None:
    chief = chief_of(plan_checkpoints(str(tmp_path / "shared"), "run"), tmp_path)
    with pytest.raises(ConfigError, match="must hold something"):
        chief.save(lambda _: None, 1)
    assert chief.latest() is None


def test_without_a_folder_the_error_says_what_to_pass() -> None:
    assert "checkpoint_dir=" in absent_checkpoints().fix


@pytest.mark.fault
def test_a_node_that_does_not_see_the_drivers_folder_is_refused(tmp_path: Path) -> None:
    checkpoints = plan_checkpoints(str(tmp_path / "shared"), "run")
    plan = dataclasses.replace(plan_of(2), checkpoints=checkpoints)
    check_here(plan)
    (tmp_path / "shared").rename(tmp_path / "elsewhere")  # as on a host without the mount
    with pytest.raises(EmberflowError, match="does not see the checkpoint folder") as caught:
        check_here(plan)
    assert checkpoints.folder in str(caught.value)
    assert "hdfs://" in caught.value.fix
