"""What YARN says of an application, beside an error."""

from types import SimpleNamespace
from typing import Any

import pytest

from emberflow._driver import yarn
from emberflow._driver.cluster_facts import ClusterFacts
from emberflow.errors import ClusterError, EmberflowError, NodeFailedError, NodeLostError


def report_of(state: str, final: str, words: str) -> SimpleNamespace:
    """Return what Hadoop's client answers."""
    return SimpleNamespace(
        getYarnApplicationState=lambda: state,
        getFinalApplicationStatus=lambda: final,
        getDiagnostics=lambda: words,
    )


def told(monkeypatch: pytest.MonkeyPatch, report: Any, error: EmberflowError, master: str = "yarn") -> str:
    def answer(spark: Any, application: str) -> Any:
        if isinstance(report, Exception):
            raise report
        return report

    monkeypatch.setattr(yarn, "_report", answer)
    facts = ClusterFacts(is_connect=False, master=master, application="application_1_0001")
    yarn.add_application(error, None, facts)  # type: ignore[arg-type]
    return str(error)


RUNNING = report_of("RUNNING", "UNDEFINED", "")
KILLED = report_of("KILLED", "KILLED", "Application killed\nby user a.")


def test_the_state_and_the_command_for_logs_stand_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(monkeypatch, RUNNING, NodeLostError("lost.", fix="Look."))
    assert said == (
        "lost.\nYARN: application_1_0001 is RUNNING.\n"
        "Fix: Look. Read more: yarn logs -applicationId application_1_0001 -log_files stderr"
    )


def test_an_application_that_was_killed_is_told_in_yarns_words(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(monkeypatch, KILLED, ClusterError("stopped.", fix="Keep it."))
    assert "YARN: application_1_0001 is KILLED, KILLED: Application killed by user a.\n" in said


def test_a_resource_manager_that_does_not_answer_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(monkeypatch, ConnectionError("refused"), NodeLostError("lost.", fix="Look."))
    assert said.startswith("lost.\nYARN: the state of application_1_0001 is not known (ConnectionError).")


def test_errors_of_your_function_and_other_clusters_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, RUNNING, NodeFailedError("raised.", fix="Correct.")) == "raised.\nFix: Correct."
    elsewhere = NodeLostError("lost.", fix="Look.")
    assert told(monkeypatch, RUNNING, elsewhere, "spark://a:1") == "lost.\nFix: Look."
