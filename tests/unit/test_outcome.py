"""How a node ended travels as text and comes out as one typed error."""

import pickle
import signal

import pytest

from emberflow._protocol.outcome import Ending, Outcome, describe_exit
from emberflow.errors import NodeFailedError, NodeLostError

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in train\nValueError: nan loss\n'
RAISED = Outcome(
    rank=1,
    role="worker",
    index=0,
    host="b",
    ending=Ending.RAISED,
    problem=TRACEBACK,
    exception_type="ValueError",
    log_tail="step 7",
    devices=("/GPU:0",),
)


def test_an_outcome_survives_its_travel_as_text() -> None:
    assert Outcome.from_json(RAISED.to_json()) == RAISED


def test_a_raising_node_becomes_an_error_with_rank_host_traceback_and_tail() -> None:
    error = RAISED.error(others=("chief 0 on a: UnavailableError",))
    assert isinstance(error, NodeFailedError)
    assert (error.rank, error.role, error.host, error.exception_type) == (1, "worker", "b", "ValueError")
    assert error.remote_traceback == TRACEBACK
    assert error.others == ("chief 0 on a: UnavailableError",)
    text = str(error)
    assert text.startswith("Worker 1 on b failed. Your function raised:\nTraceback")
    assert "ValueError: nan loss\nLast lines of its log:\nstep 7\nFix: " in text
    assert str(pickle.loads(pickle.dumps(error))) == text


def test_a_lost_node_says_how_its_process_ended() -> None:
    problem, fix = describe_exit(-signal.SIGKILL)
    lost = Outcome(rank=0, role="chief", index=0, host="a", ending=Ending.LOST, problem=problem, fix=fix)
    error = lost.error()
    assert isinstance(error, NodeLostError)
    assert "Chief 0 on a was lost: its process was killed by SIGKILL" in str(error)
    assert "spark.executor.memoryOverhead" in error.fix


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-11, "SIGSEGV"),
        (-6, "SIGABRT"),
        (-signal.SIGBUS, "a file that it had mapped could not be read"),
        (3, "status 3"),
        (0, "status 0"),
        (None, "had to be ended"),
    ],
)
def test_every_exit_status_is_named_and_has_a_remedy(status: int | None, words: str) -> None:
    problem, fix = describe_exit(status)
    assert words in problem
    assert fix


def test_unknown_signals_do_not_break_the_description() -> None:
    assert "34" in describe_exit(-34)[0] or "SIGRTMIN" in describe_exit(-34)[0]
    assert "35" in describe_exit(-35)[0]


@pytest.mark.parametrize(("kind", "expected"), [("UnavailableError", True), ("ValueError", False)])
def test_errors_of_broken_collectives_count_as_consequences(kind: str, expected: bool) -> None:
    outcome = Outcome(rank=0, role="chief", index=0, host="a", ending=Ending.RAISED, exception_type=kind)
    assert outcome.is_collateral is expected
