"""Runs that share a driver take turns for slots."""

import threading
from queue import SimpleQueue

import pytest

from emberflow._driver.slot_queue import SlotQueue
from emberflow.errors import ClusterError

WITHIN = 10.0


def test_a_run_waits_until_there_are_slots_for_all_its_nodes() -> None:
    queue = SlotQueue()
    said: list[str] = []
    may_go, waits, has_slots = threading.Event(), threading.Event(), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        waits.set()

    def second() -> None:
        with queue.held("app", nodes=2, slots=2, say=say):
            has_slots.set()
            may_go.wait(WITHIN)

    with queue.held("app", nodes=1, slots=2, say=said.append, holder="run mnist 3f2a"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(WITHIN)
        assert not has_slots.is_set()
        with queue.held("another app", nodes=2, slots=2, say=said.append):  # applications do not share slots
            pass
        with queue.held("app", nodes=1, slots=2, say=said.append, holder="b"):  # a smaller run goes past it
            pass
    assert has_slots.wait(WITHIN)
    may_go.set()
    thread.join(WITHIN)
    assert said[0] == "waits for 2 of 2 task slots; run mnist 3f2a holds 1"
    assert len(said) <= 2 or said[1].endswith("b holds 1")


def test_a_run_that_waits_is_told_when_another_holds_its_slots() -> None:
    queue = SlotQueue()
    said: SimpleQueue[str] = SimpleQueue()

    def last() -> None:
        with queue.held("app", nodes=2, slots=2, say=said.put):
            pass

    with queue.held("app", nodes=1, slots=2, say=pytest.fail, holder="run a"):
        with queue.held("app", nodes=1, slots=2, say=pytest.fail, holder="run b"):
            thread = threading.Thread(target=last)
            thread.start()
            assert said.get(timeout=WITHIN) == "waits for 2 of 2 task slots; run a holds 1, run b holds 1"
        assert said.get(timeout=WITHIN) == "waits for 2 of 2 task slots; run a holds 1"
    thread.join(WITHIN)
    assert not thread.is_alive()


def test_slots_are_released_after_an_error() -> None:
    queue = SlotQueue()
    with pytest.raises(ValueError, match="broken"), queue.held("b", nodes=2, slots=2, say=print):
        raise ValueError("broken")
    with queue.held("b", nodes=2, slots=2, say=pytest.fail):
        pass


def test_nobody_waits_for_a_live_cluster() -> None:
    queue, said = SlotQueue(), list[str]()
    with queue.held("app", nodes=2, slots=3, say=said.append, is_kept=True):
        with pytest.raises(ClusterError, match=r"Received: 2 of 3 task slots held") as caught:
            queue.held("app", nodes=2, slots=3, say=said.append).__enter__()
        assert "cluster.stop()" in caught.value.fix
        with queue.held("app", nodes=1, slots=3, say=said.append):
            pass
        with pytest.raises(ClusterError):  # jobs that feed the two clusters would have no slot
            queue.held("app", nodes=1, slots=3, say=said.append, is_kept=True).__enter__()
    with queue.held("app", nodes=2, slots=3, say=said.append):
        pass
    assert said == []


def test_a_run_that_waits_is_refused_when_a_live_cluster_takes_its_slots() -> None:
    queue, waits = SlotQueue(), threading.Event()
    errors: list[ClusterError] = []

    def second() -> None:
        try:
            with queue.held("app", nodes=3, slots=3, say=lambda _: waits.set()):
                pass
        except ClusterError as error:
            errors.append(error)

    with queue.held("app", nodes=1, slots=3, say=pytest.fail):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(WITHIN)
        with queue.held("app", nodes=1, slots=3, say=pytest.fail, is_kept=True):
            thread.join(WITHIN)
    assert len(errors) == 1
