"""Runs that share a driver take turns for slots."""

import threading

import pytest

from emberflow._driver.slot_queue import seats

WITHIN = 10.0


def test_a_run_waits_until_there_are_seats_for_all_its_nodes() -> None:
    said: list[str] = []
    may_go, waits, seated = threading.Event(), threading.Event(), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        waits.set()

    def second() -> None:
        with seats("app", nodes=2, slots=2, say=say):
            seated.set()
            may_go.wait(WITHIN)

    with seats("app", nodes=1, slots=2, say=said.append):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(WITHIN)
        assert not seated.is_set()
        with seats("another app", nodes=2, slots=2, say=said.append):  # applications do not share slots
            pass
        with seats("app", nodes=1, slots=2, say=said.append):  # a smaller run goes past it
            pass
    assert seated.wait(WITHIN)
    may_go.set()
    thread.join(WITHIN)
    assert said == ["waiting: other runs of this driver hold 1 of 2 slots"]


def test_seats_are_given_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="broken"), seats("b", nodes=2, slots=2, say=print):
        raise ValueError("broken")
    with seats("b", nodes=2, slots=2, say=pytest.fail):
        pass
