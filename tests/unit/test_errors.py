"""Errors say what is wrong and what to do, and keep all of it over a pickle."""

import pickle

from emberflow.errors import ConfigError, EmberflowError, NodeFailedError, NodeLostError, StorageError


def test_the_text_is_problem_then_fix() -> None:
    error = EmberflowError("It broke. Received: x=1.", fix="Pass x=2.")
    assert str(error) == "It broke. Received: x=1.\nFix: Pass x=2."


def test_a_failed_node_keeps_everything_over_a_pickle() -> None:
    error = NodeFailedError(
        "Worker 3 on b failed.", "Fix it.", rank=3, role="worker", host="b", log_tail="last\n", others=["o"]
    )
    error.remote_traceback = "Traceback ...\nValueError: nan loss"
    error.exception_type = "ValueError"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is NodeFailedError
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)
    assert copy.others == ("o",)


def test_a_node_error_shows_the_tail_of_its_log_before_the_fix() -> None:
    error = NodeLostError("Worker 1 on b was lost.", "Look.", log_tail="about to fail\n")
    assert str(error) == "Worker 1 on b was lost.\nLast lines of its log:\nabout to fail\nFix: Look."
    assert "Last lines" not in str(NodeLostError("Lost.", "Look.", log_tail=" \n"))


def test_errors_can_be_caught_by_their_python_kin() -> None:
    assert isinstance(ConfigError("p", "f"), ValueError)
    storage = StorageError("p", "f")
    assert isinstance(storage, OSError)
    assert str(storage) == "p\nFix: f"
