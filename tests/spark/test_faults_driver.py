"""The driver itself is interrupted or killed: its nodes go with it."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.spark.watching import START, await_begun, await_gone, await_noted, driver

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.fault
def test_control_c_ends_the_nodes_and_raises_keyboard_interrupt(tmp_path: Path) -> None:
    with driver(tmp_path, "local-cluster[2,1,1024]", "run") as process:
        nodes = [await_begun(tmp_path, rank).node for rank in range(2)]
        pressed = time.time()
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole foreground group
        noted = await_noted(tmp_path / "raised")
        print(f"Ctrl-C: raised after {noted.at - pressed:.2f} s")
        assert noted.kind == "KeyboardInterrupt"
        for node in nodes:
            await_gone(node, timeout=0.0)  # before ef.run came back
        assert process.wait(START) == 0


@pytest.mark.fault
def test_a_killed_driver_takes_its_nodes_along(tmp_path: Path) -> None:
    with driver(tmp_path, "local-cluster[2,1,1024]", "run") as process:
        nodes = [await_begun(tmp_path, rank).node for rank in range(2)]
        process.kill()
        killed = time.time()
        for node in nodes:
            await_gone(node)
        print(f"SIGKILL of the driver: nodes gone after {time.time() - killed:.2f} s")
