"""Children in the background: heard, ended, and gone when their owner is killed. The children are shell scripts."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emberflow.errors import ClusterError, StartTimeoutError
from emberflow.local.daemons import daemon_group, wait_until_ready

SOON = 20.0


def gone(pid: int) -> bool:
    """Wait until the process has ended; False if it is there after the deadline."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], SOON)[0])
    finally:
        os.close(watched)


def test_hear_returns_what_the_group_matched() -> None:
    with daemon_group("emberflow-test-") as group:
        child = group.start(
            "child", ["sh", "-c", "echo noise; echo port=7 up; read x"], os.environ, r"port=(\d+)"
        )
        assert wait_until_ready(child, time.monotonic() + SOON) == "7"
        assert child.log.read_text().startswith("noise\n")


def test_the_folder_is_private_and_gone_after_the_block() -> None:
    with daemon_group("emberflow-test-") as group:
        assert group.folder.stat().st_mode & 0o777 == 0o700
    assert not group.folder.exists()


def test_children_and_theirs_end_with_the_block() -> None:
    with daemon_group("emberflow-test-") as group:
        child = group.start("child", ["sh", "-c", "sleep 600 & echo pid=$!; wait"], os.environ, r"pid=(\d+)")
        grandchild = int(wait_until_ready(child, time.monotonic() + SOON))
        second = group.start("second", ["sh", "-c", "echo up; sleep 600"], os.environ, r"(up)")
        wait_until_ready(second, time.monotonic() + SOON)
    assert gone(grandchild)
    assert child.process.returncode == second.process.returncode == -signal.SIGKILL


def test_a_child_that_fails_is_an_error_with_its_log() -> None:
    with daemon_group("emberflow-test-") as group:
        child = group.start("child", ["sh", "-c", "echo no such port >&2; exit 3"], os.environ, "(never)")
        with pytest.raises(ClusterError, match=r"(?s)child exited with code 3.*no such port"):
            wait_until_ready(child, time.monotonic() + SOON)


def test_a_killed_child_is_named_with_its_signal() -> None:
    with daemon_group("emberflow-test-") as group:
        child = group.start("child", ["sh", "-c", "kill -TERM $$"], os.environ, "(never)")
        with pytest.raises(ClusterError, match="child was killed by SIGTERM"):
            wait_until_ready(child, time.monotonic() + SOON)


def test_a_silent_child_is_a_timeout() -> None:
    with daemon_group("emberflow-test-") as group:
        child = group.start("child", ["sleep", "600"], os.environ, "(never)")
        with pytest.raises(StartTimeoutError, match="child was not ready in time"):
            wait_until_ready(child, time.monotonic() + 0.05)


def test_an_exception_in_the_block_ends_the_children() -> None:
    started = []

    def interrupted() -> None:
        with daemon_group("emberflow-test-") as group:
            started.append(group.start("child", ["sh", "-c", "echo up; sleep 600"], os.environ, "(up)"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gone(started[0].process.pid)
    assert not started[0].log.parent.exists()


OWNER = """
import os, sys, time
from emberflow.local.daemons import daemon_group, wait_until_ready
with daemon_group("emberflow-test-") as group:
    child = group.start("child", ["sh", "-c", "sleep 600 & echo pid=$!; wait"], os.environ, r"pid=(\\d+)")
    grandchild = wait_until_ready(child, time.monotonic() + 20)
    print(grandchild, child.process.pid, group._keeper.pid, group.folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_killed_owner(kill: signal.Signals) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=pipe, stdout=pipe, text=True) as owner:
        assert owner.stdout is not None
        grandchild, child, keeper, folder = owner.stdout.readline().split()
        owner.send_signal(kill)
        owner.wait()
    assert gone(int(grandchild))
    assert gone(int(child))
    assert gone(int(keeper))
    assert not Path(folder).exists()
