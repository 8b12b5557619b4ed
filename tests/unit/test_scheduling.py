"""Each of several test processes starts few clusters, and no other test runs beside one that is marked `alone`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("xdist")  # one process needs no scheduler

from tests.scheduling import ClusterScheduling, write_groups

TESTS = {
    "unit/test_a.py::test_1": "unit",
    "unit/test_a.py::test_2": "unit",
    "unit/test_b.py::test_1": "unit",
    "spark/test_a.py::test_1": "cluster",
    "spark/test_b.py::test_1": "cluster",
    "spark/test_b.py::test_2": "cluster",
    "spark/test_c.py::test_1": "connect",
    "spark/test_b.py::test_3": "connect",
    "unit/test_b.py::test_2": "alone",
    "spark/test_b.py::test_4": "alone",
}


class Process:
    """Takes note of the tests that it is given."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="gw")
        self.shutting_down = False
        self.given: list[int] = []
        self.done = 0

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduling(folder: Path, tests: dict[str, str], processes: list[Process], **options: bool) -> Any:
    """Return the scheduler of a run that has just begun."""
    write_groups(folder, tests)
    config: Any = SimpleNamespace(
        option=SimpleNamespace(loadscopereorder=True),
        getvalue=lambda _: ["popen"] * len(processes),
        getini=lambda _: [],
    )
    log: Any = SimpleNamespace(loadscopesched=lambda *_: None)
    chosen: Any = ClusterScheduling(config, log, folder, **options)
    for process in processes:
        chosen.add_node(process)
        chosen.add_node_collection(process, list(tests))
    chosen.schedule()
    return chosen


def finish(chosen: Any, processes: list[Process]) -> list[list[str]]:
    """Run the tests as processes do, the first process first; return who ran what."""
    tests = list(TESTS)
    while True:
        # A process begins a test when it knows the next one, or that there is none.
        able = [each for each in processes if each.done < len(each.given) - (not each.shutting_down)]
        if able:
            able[0].done += 1
            chosen.mark_test_complete(able[0], able[0].given[able[0].done - 1])
            continue
        ended = [each for each in chosen.nodes if each.shutting_down]
        if not ended:
            return [[tests[index] for index in each.given[: each.done]] for each in processes]
        chosen.remove_node(ended[0])


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_every_test_runs_once(tmp_path: Path, count: int) -> None:
    processes = [Process() for _ in range(count)]
    ran = finish(scheduling(tmp_path, TESTS, processes), processes)
    assert sorted(name for names in ran for name in names) == sorted(TESTS)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_process_stays_with_its_cluster(tmp_path: Path, count: int) -> None:
    processes = [Process() for _ in range(count)]
    for names in finish(scheduling(tmp_path, TESTS, processes), processes):
        groups = [TESTS[name] for name in names]
        changes = [group for group, before in zip(groups, [None, *groups], strict=False) if group != before]
        assert len(changes) == len(set(groups))
        assert "alone" not in groups or groups[-2:] == ["alone", "alone"]


@pytest.mark.parametrize("unit_first", [False, True])
def test_only_the_first_process_begins_with_a_cluster_that_takes_long(
    tmp_path: Path, unit_first: bool
) -> None:
    processes = [Process() for _ in range(3)]
    ran = finish(scheduling(tmp_path, TESTS, processes, unit_first=unit_first), processes)
    first = [TESTS[names[0]] for names in ran]
    assert first == (["cluster", "unit", "unit"] if unit_first else ["cluster", "connect", "cluster"])
    assert sorted(name for names in ran for name in names) == sorted(TESTS)


@pytest.mark.parametrize("count", [2, 3, 12])
def test_a_test_alone_waits_until_the_others_have_ended(tmp_path: Path, count: int) -> None:
    processes = [Process() for _ in range(count)]
    chosen = scheduling(tmp_path, TESTS, processes)
    given = chosen._assign_work_unit

    def assign(node: Process) -> None:
        before = len(node.given)
        given(node)
        if any(list(TESTS.values())[index] == "alone" for index in node.given[before:]):
            assert chosen.nodes == [node]

    chosen._assign_work_unit = assign
    finish(chosen, processes)
    assert not chosen.workqueue
