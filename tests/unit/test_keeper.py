"""The keeper ends a node and all that came of it, whatever happens around them."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from emberflow._task.node_process import KEEPER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses prctl and pidfds")
WITHIN = 10.0
SLEEP = "import signal; signal.pause()"


class Kept:
    """A keeper with a node that runs a piece of Python, and the pipe on which they speak to us."""

    def __init__(
        self, code: str, folder: Path, watched: tuple[int, ...] = (), held: tuple[int, ...] = ()
    ) -> None:
        self.folder = folder
        self._said = b""
        self._log_r, log_w = os.pipe()
        held = (*watched, *held)
        order = {
            "argv": [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)],
            "environment": {"MARK": "here"},
            "folders": [str(folder)],
            "held_fds": held,
            "log_fd": log_w,
            "node_fds": [log_w],
            "watched_fds": watched,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=(log_w, *held),
            start_new_session=True,
        )
        os.close(log_w)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")

    def node(self) -> int:
        """Return the node's pid."""
        assert self.process.stdout is not None
        return int(json.loads(self.process.stdout.readline())["pid"])

    def status(self) -> int | None:
        """Return the exit status of the node, told by the keeper when nothing is left."""
        assert self.process.stdout is not None
        status: int | None = json.loads(self.process.stdout.readline())["status"]
        return status

    def says(self) -> int:
        """Return the number that the node or a descendant prints next."""
        while b"\n" not in self._said:
            assert select.select([self._log_r], [], [], WITHIN)[0], "it says nothing"
            data = os.read(self._log_r, 100)
            assert data, "it has ended"
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        return int(line)

    def let_go(self) -> None:
        """Close the keeper's standard input, as the end of the task does."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.let_go()
        self.process.wait(WITHIN)
        os.close(self._log_r)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "node"
    made.mkdir()
    (made / "spool").write_bytes(b"rows")
    return made


@contextlib.contextmanager
def kept(
    code: str, folder: Path, watched: tuple[int, ...] = (), held: tuple[int, ...] = ()
) -> Iterator[Kept]:
    with contextlib.closing(Kept(code, folder, watched, held)) as keeper:
        yield keeper


def gone(pid: int) -> bool:
    """Wait until a process has ended; False if it does not."""
    deadline = time.monotonic() + WITHIN
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(0.01)
    return True


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; assert os.environ == {'MARK': 'here', 'LC_CTYPE': 'C.UTF-8'}", 0),
    ],
)
def test_the_exit_status_is_told_and_the_folder_gone(code: str, status: int, folder: Path) -> None:
    with kept(code, folder) as keeper:
        keeper.node()
        assert keeper.status() == status
        assert not folder.exists()


def test_a_task_that_lets_go_ends_the_node(folder: Path) -> None:
    with kept(SLEEP, folder) as keeper:
        node = keeper.node()
        keeper.let_go()
        assert keeper.status() is None
        assert gone(node)
        assert not folder.exists()


GRANDCHILDREN = """
    import os, signal, sys
    heard, said = os.pipe()
    for leave in (lambda: None, os.setsid):
        if not os.fork():
            leave()
            if os.fork():
                os._exit(0)  # an orphan remains
            print(os.getpid(), flush=True)
            os.write(said, b"x")
            signal.pause()
    for _ in range(2):
        os.read(heard, 1)
"""


@pytest.mark.fault
@pytest.mark.parametrize("ending", ["node returns", "task lets go", "node killed"])
def test_grandchildren_go_too_in_the_group_or_out_of_it(ending: str, folder: Path) -> None:
    code = GRANDCHILDREN + ("" if ending == "node returns" else "    signal.pause()\n")
    with kept(code, folder) as keeper:
        node = keeper.node()
        orphans = [keeper.says(), keeper.says()]
        if ending == "task lets go":
            keeper.let_go()
        elif ending == "node killed":
            os.kill(node, signal.SIGKILL)
        keeper.status()
        assert all(gone(orphan) for orphan in orphans)


@pytest.mark.fault
def test_a_killed_keeper_takes_the_node_with_it(folder: Path) -> None:
    with kept(SLEEP, folder) as keeper:
        node = keeper.node()
        keeper.process.kill()
        assert gone(node)


@pytest.mark.fault
def test_the_end_of_the_executor_ends_the_node(folder: Path) -> None:
    executor = subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEP])
    jvm_fd = os.pidfd_open(executor.pid)
    with kept(SLEEP, folder, watched=(jvm_fd,)) as keeper:
        os.close(jvm_fd)
        node = keeper.node()
        executor.kill()
        assert keeper.status() is None
        assert gone(node)
    executor.wait()


def test_orphans_that_end_are_taken_in_while_the_node_runs(folder: Path) -> None:
    code = """
        import os, signal
        for _ in range(20):
            if not os.fork():
                if not os.fork():
                    os._exit(0)
                os._exit(0)
            os.wait()
        print(1, flush=True)
        signal.pause()
    """
    with kept(code, folder) as keeper:
        node = keeper.node()
        keeper.says()
        deadline = time.monotonic() + WITHIN
        while (children := psutil.Process(keeper.process.pid).children()) != [psutil.Process(node)]:
            assert time.monotonic() < deadline, children


def test_what_is_held_for_others_is_not_passed_on_to_the_node(folder: Path) -> None:
    held_r, held_w = os.pipe()
    with kept(
        f"import os\ntry: os.fstat({held_w}); print(1)\nexcept OSError: print(0)", folder, held=(held_w,)
    ) as k:
        os.close(held_w)
        k.node()
        assert k.says() == 0
        k.status()
    assert os.read(held_r, 1) == b""  # the keeper held it to the end
    os.close(held_r)


@pytest.mark.fault
def test_a_task_that_dies_before_its_order_leaves_nothing(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-I", "-S", str(KEEPER)], input=b'{"argv"', capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
