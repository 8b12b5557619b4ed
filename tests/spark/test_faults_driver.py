"""The driver itself is interrupted or killed: its nodes go with it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.watching import GOAL, START, await_begun, await_file, await_gone

pytestmark = pytest.mark.usefixtures("nothing_left")


@contextmanager
def driver(folder: Path, master: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a driver whose two nodes train for ever; end its whole session afterwards, whatever it did."""
    log = (folder / "driver.log").open("wb")
    command = [sys.executable, "-m", "tests.spark.lonely_driver", str(folder), master]
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        log.close()
        for kind in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, kind)
                process.wait(START)


@pytest.mark.fault
def test_control_c_ends_the_nodes_and_raises_keyboard_interrupt(tmp_path: Path) -> None:
    with driver(tmp_path, "local-cluster[2,1,1024]") as process:
        nodes = [await_begun(tmp_path, rank).node for rank in range(2)]
        pressed = time.time()
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole foreground group
        await_file(tmp_path / "raised", GOAL)
        print(f"Ctrl-C: raised after {time.time() - pressed:.2f} s")
        assert (tmp_path / "raised").read_text() == "KeyboardInterrupt", (tmp_path / "driver.log").read_text()
        for node in nodes:
            await_gone(node, timeout=0.0)  # before ef.run came back
        assert process.wait(START) == 0


@pytest.mark.fault
def test_a_killed_driver_takes_its_nodes_along(tmp_path: Path) -> None:
    with driver(tmp_path, "local-cluster[2,1,1024]") as process:
        nodes = [await_begun(tmp_path, rank).node for rank in range(2)]
        process.kill()
        killed = time.time()
        for node in nodes:
            await_gone(node)
        print(f"SIGKILL of the driver: nodes gone after {time.time() - killed:.2f} s")
