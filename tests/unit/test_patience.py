"""A limit to waiting for calls that may never come back."""

import threading
import time

import pytest

from emberflow.errors import PeerError
from emberflow.strategies.transport.timed_call import Patience


def test_calls_are_made_one_after_the_other_and_errors_are_raised_here() -> None:
    with Patience(5.0) as patience:
        assert [patience.wait_for(lambda number=number: number * 2, "them") for number in range(3)] == [
            0,
            2,
            4,
        ]
        with pytest.raises(KeyError):
            patience.wait_for(lambda: {}["missing"], "them")
        thread = patience.wait_for(threading.current_thread, "them")
        assert thread is not threading.current_thread()
    thread.join(5)
    assert not thread.is_alive()


def test_what_does_not_come_back_is_an_error_that_names_who_is_waited_for() -> None:
    never = threading.Event()
    started = time.monotonic()
    with Patience(0.2) as patience:
        hanging = patience.wait_for(threading.current_thread, "rank 1")
        with pytest.raises(PeerError, match=r"0\.2 s \(twice exchange_timeout\).*none of rank 1"):
            patience.wait_for(never.wait, "rank 1")
        assert time.monotonic() - started < 5
        never.set()  # its answer comes after all, and is not that to the next call
        assert patience.wait_for(lambda: "next", "rank 1") == "next"
        hanging.join(5)
        assert not hanging.is_alive()
