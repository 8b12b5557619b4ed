"""What is worth a restart, and what is not."""

import pytest

from emberflow._driver.spark_errors import translate
from emberflow._driver.supervisor import _may_restart
from emberflow.config import RunConfig
from emberflow.errors import (
    ClusterError,
    DataError,
    EmberflowError,
    NodeFailedError,
    NodeLostError,
    StartTimeoutError,
    StorageError,
)
from tests.unit.nodes import outcome_of

PLAIN = RunConfig(workers=2, max_restarts=1)
ALSO_ERRORS = RunConfig(workers=2, max_restarts=1, restart_on_error=True)
LOST = """Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure
reason: Stage failed because barrier task ResultTask(2, 0) finished unsuccessfully.
ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Command exited with code 137
Driver stacktrace:"""


def test_a_lost_node_is_worth_a_restart() -> None:
    assert _may_restart(outcome_of(1, "lost", problem="killed").error(), PLAIN)


def test_an_executor_that_goes_before_its_nodes_have_dialled_is_a_lost_node() -> None:
    error = translate(RuntimeError(LOST))
    assert isinstance(error, NodeLostError)
    assert "executor 0 exited" in str(error)
    assert "stacktrace" not in str(error)
    assert _may_restart(error, PLAIN)


def test_storage_out_of_reach_is_worth_one_but_not_a_damaged_file() -> None:
    refused = outcome_of(1, "refused", problem="no route", exception_type="StorageError", is_transient=True)
    assert _may_restart(refused.error(), PLAIN)
    damaged = outcome_of(1, "refused", problem="bad footer", exception_type="StorageError").error()
    assert isinstance(damaged, StorageError)
    assert not _may_restart(damaged, ALSO_ERRORS)
    assert not _may_restart(DataError("row 77 is bad", fix="correct it"), ALSO_ERRORS)


def test_your_own_exception_is_worth_one_only_if_asked() -> None:
    error = outcome_of(1, "raised", problem="ValueError: nan", exception_type="ValueError").error()
    assert isinstance(error, NodeFailedError)
    assert not _may_restart(error, PLAIN)
    assert _may_restart(error, ALSO_ERRORS)


@pytest.mark.parametrize("kind", ["UnavailableError", "PeerError", "AbortedError"])
def test_an_exception_that_only_another_nodes_end_explains_is_worth_one(kind: str) -> None:
    error = outcome_of(1, "raised", problem=f"{kind}: socket closed", exception_type=kind).error()
    assert _may_restart(error, PLAIN)


@pytest.mark.parametrize(
    "error",
    [
        outcome_of(1, "refused", problem="no TensorFlow", fix="Install it.").error(),
        ClusterError("too few slots", fix="more"),
        StartTimeoutError("not all came", fix="wait"),
    ],
)
def test_what_would_fail_again_is_not_worth_one(error: EmberflowError) -> None:
    assert not _may_restart(error, ALSO_ERRORS)
