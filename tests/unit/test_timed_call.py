"""A time limit for calls that may never return."""

import threading
import time

import pytest

from emberflow.errors import PeerError
from emberflow.strategies.transport.timed_call import TimedCaller


def test_calls_are_made_one_after_the_other_and_errors_are_raised_here() -> None:
    with TimedCaller(5.0) as caller:
        assert [caller.call(lambda number=number: number * 2, "them") for number in range(3)] == [
            0,
            2,
            4,
        ]
        with pytest.raises(KeyError):
            caller.call(lambda: {}["missing"], "them")
        thread = caller.call(threading.current_thread, "them")
        assert thread is not threading.current_thread()
    thread.join(5)
    assert not thread.is_alive()


def test_a_call_that_does_not_return_is_an_error_that_names_the_nodes_waited_for() -> None:
    never = threading.Event()
    started = time.monotonic()
    with TimedCaller(0.2) as caller:
        hanging = caller.call(threading.current_thread, "rank 1")
        with pytest.raises(PeerError, match=r"0\.2 s \(twice exchange_timeout\).*no answer of rank 1"):
            caller.call(never.wait, "rank 1")
        assert time.monotonic() - started < 5
        never.set()  # its late result is not that of the next call
        assert caller.call(lambda: "next", "rank 1") == "next"
        hanging.join(5)
        assert not hanging.is_alive()
