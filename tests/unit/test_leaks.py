"""The leak check must find what it looks for, or every test that relies on it proves nothing."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import leaks

CHILD = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(flush=True); sys.stdin.read()"


def test_nothing_new_is_no_leak() -> None:
    leaks.await_nothing_beyond(leaks.look(), timeout=1.0)


def test_a_process_of_a_run_and_its_port_are_named() -> None:
    before = leaks.look()
    env = {**os.environ, leaks.RUN: "abc"}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=pipe, stdout=pipe, env=env) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(AssertionError, match=rf"port \d+ of process {child.pid}") as caught:
            leaks.await_nothing_beyond(before, timeout=0.0)
        assert f"process {child.pid} of run abc" in str(caught.value)
        child.kill()
    leaks.await_nothing_beyond(before)


def test_a_port_of_this_process_is_named() -> None:
    before = leaks.look()
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert any(f"port {server.getsockname()[1]} " in line for line in leaks.look().beyond(before))


def test_a_folder_is_named() -> None:
    before = leaks.look()
    with tempfile.TemporaryDirectory(prefix="emberflow-") as folder:
        assert leaks.look().beyond(before) == [f"folder {folder}"]


def test_a_folder_in_sparks_scratch_space_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    before = leaks.look()
    (tmp_path / "blockmgr-1" / "emberflow-x").mkdir(parents=True)
    assert leaks.look().beyond(before) == [f"folder {tmp_path}/blockmgr-1/emberflow-x"]


def test_a_file_of_the_session_in_an_executors_folder_is_no_leak(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    before = leaks.look()
    folder = tmp_path / "Worker-0" / "app-20260101000000-0000" / "0"
    (folder / "emberflow-x").mkdir(parents=True)
    (folder / f"emberflow-{'0af' * 10}00.zip").touch()
    assert leaks.look().beyond(before) == [f"folder {folder}/emberflow-x"]
