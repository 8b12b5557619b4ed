"""The command line: what it says, and how the doctor judges."""

import inspect
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from emberflow import __version__
from emberflow.cli import doctor
from emberflow.cli import doctor_checks as checks
from emberflow.cli.main import app
from emberflow.ml import KerasEstimator
from emberflow.ml.run_params import RUN_OPTIONS

PLAIN = re.compile(r"\x1b\[[0-9;]*m")


def said_to(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return PLAIN.sub("", done.output)


def test_version() -> None:
    assert said_to("--version") == f"emberflow {__version__}\n"


@pytest.mark.parametrize("command", ["demo", "doctor", "local-cluster", "local-hadoop"])
def test_every_command_teaches_by_example(command: str) -> None:
    assert command in said_to("--help")
    assert f"emberflow {command} --" in said_to(command, "--help")


def options_of_train() -> dict[str, Any]:
    """Return the default of each option of `emberflow train`, by each of its names."""
    group: Any = typer.main.get_command(app)
    return {name: option.default for option in group.commands["train"].params for name in option.opts}


def test_train_has_an_option_for_every_run_option_of_the_estimator() -> None:
    signature = inspect.signature(KerasEstimator).parameters
    options = options_of_train()
    for param in RUN_OPTIONS:
        option = "--" + re.sub(r"(?=[A-Z])", "-", param).lower()
        assert option in options, f"emberflow train cannot set {param}"
        if param != "numWorkers":  # "auto" is no number: it is what is left out
            assert options[option] == signature[param].default


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from emberflow.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print({'pyspark', 'tensorflow', 'numpy', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("name", "version", "state"),
    [
        ("pyspark", None, "failure"),
        ("pyspark", "3.4.4", "failure"),
        ("pyspark", "3.5.0", "ok"),
        ("pyspark", "4.3.9", "ok"),
        ("pyspark", "4.4.0.dev1", "warning"),
        ("tensorflow", "3.0.0rc1", "warning"),
        ("keras", "2.15.0", "failure"),
        ("keras", "3.11.2", "failure"),
        ("keras", "3.15.1", "ok"),
        ("pandas", None, "failure"),
        ("pandas", "2.1.4", "failure"),
        ("pandas", "2.3.3", "ok"),
        ("pandas", "3.0.1", "warning"),
    ],
)
def test_versions(name: str, version: str | None, state: str) -> None:
    finding = checks.check_version(name, version)
    assert finding.state == state
    assert bool(finding.fix) == (state != "ok")


def test_java_that_is_missing_is_a_failure_with_a_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("emberflow.local.java.find_spec", lambda _: None)
    finding = checks.check_java()
    assert finding.state == "failure"
    assert "emberflow[java]" in finding.fix


def test_a_host_name_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise socket.gaierror(-2, f"{name} not known")

    monkeypatch.setattr(socket, "gethostbyname", unknown)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    assert checks.check_host_name().state == "failure"
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert checks.check_host_name().state == "ok"


def fake_python(path: Path, answer: str) -> str:
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return str(path)


def test_executors_python_is_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert checks.check_executor_python().state == "ok"
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "absent"))
    assert checks.check_executor_python().state == "failure"
    old = '{"version": [3, 8], "prefix": "/usr", "missing": []}'
    monkeypatch.setenv("PYSPARK_PYTHON", fake_python(tmp_path / "old", old))
    finding = checks.check_executor_python()
    assert finding.state == "failure"
    assert "Python 3.8" in finding.text
    assert finding.fix == f"export PYSPARK_PYTHON={sys.executable}"
    bare = f'{{"version": {list(sys.version_info[:2])}, "prefix": "/usr", "missing": ["tensorflow"]}}'
    monkeypatch.setenv("PYSPARK_PYTHON", fake_python(tmp_path / "bare", bare))
    assert "lacks tensorflow" in checks.check_executor_python().text


def test_spark_s_own_python_is_compared_where_nobody_chose_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = f'{{"version": {list(sys.version_info[:2])}, "prefix": "/usr", "missing": ["emberflow"]}}'
    fake_python(tmp_path / "python3", bare)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = checks.check_executor_python()
    assert finding.state == "warning", "our own tasks run this Python: nothing stands in their way"
    assert "lacks emberflow" in finding.text
    assert finding.fix == f"export PYSPARK_PYTHON={sys.executable}"


def answer(**other: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"host": "a", "python": list(sys.version_info[:2]), "program": sys.executable}
    for name in ("emberflow", "tensorflow", "keras", "pandas"):
        said[name] = checks.installed_version(name)
    return {key: value for key, value in (said | other).items() if value is not None}


def states(answers: list[dict[str, Any]], slots: int | None = 2) -> dict[str, str]:
    return {
        finding.what: finding.state
        for finding in doctor.check_executors(
            {"slots": slots, "memory": None, "answers": answers, "is_allocating": False}
        )
    }


def test_slots_of_now_are_not_taken_for_all_where_executors_come_later() -> None:
    finding = doctor.check_executors(
        {"slots": 2, "memory": None, "answers": [answer()], "is_allocating": True}
    )[0]
    assert (finding.state, finding.text) == ("ok", "2 on a now; more come by dynamic allocation")


def test_executors_that_agree_are_well() -> None:
    assert set(states([answer(), answer(host="b")]).values()) == {"ok"}


def test_executors_that_differ_are_named() -> None:
    assert states([answer(), answer(python=[3, 8])])["Executors' Python"] == "failure"
    missing = answer(tensorflow=None, tensorflow_error="ModuleNotFoundError: No module named 'tensorflow'")
    assert states([answer(), missing])["Executors' tensorflow"] == "failure"
    assert states([answer(keras="3.10.0")])["Executors' keras"] == "warning"
    assert states([answer()], slots=None)["Executor slots"] == "unknown"


def test_executors_that_cannot_run_our_python_are_not_blamed_on_the_master() -> None:
    log = "Error: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was not found."
    finding = doctor._no_session("spark://a:1", log)
    assert "PyArrow" in finding.text
    assert "pip install emberflow" in finding.fix
    assert "address" in doctor._no_session("spark://a:1", "Error: Connection refused").fix


def test_a_cluster_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\nif 'spark://silent' in sys.orig_argv: signal.pause()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (finding,) = doctor.ask_executors("spark://silent", timeout=0.5)
    assert finding.state == "failure"
    assert "none answered within" in finding.text
    assert "--timeout" in finding.fix


def test_exit_code_is_one_when_something_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def findings(*_: object) -> list[checks.Finding]:
        return [
            checks.Finding("Java", "failure", "none", "install one"),
            checks.Finding("Python", "ok", "3.11"),
        ]

    monkeypatch.setattr(doctor, "_findings", findings)
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "→ install one" in done.output
