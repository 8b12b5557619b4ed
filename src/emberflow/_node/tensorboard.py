"""TensorBoard beside the chief, as a child of the node: it ends with the node's process group."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping

from emberflow._node.held_port import HeldPort

URL = re.compile(r"TensorBoard \S+ at (\S+)")


def start_tensorboard(
    folder: str,
    host: str,
    port: HeldPort | None,
    environment: Mapping[str, str],
    on_serving: Callable[[str], None],
) -> None:
    """Start it on the port, or on any free one; once it serves, call `on_serving` with its address, from a thread.

    What it prints later goes to the node's log.
    """
    # It is no node of the cluster, and must not take a GPU from one.
    own = {name: value for name, value in environment.items() if name != "TF_CONFIG"}
    command = (sys.executable, "-m", "tensorboard.main")
    process = subprocess.Popen(
        [*command, "--logdir", folder, "--host", host, "--port", str(port.port if port else 0)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=own | {"CUDA_VISIBLE_DEVICES": ""},
    )
    threading.Thread(
        target=_follow, args=(process, on_serving, port), name="emberflow-tensorboard", daemon=True
    ).start()


def _follow(
    process: "subprocess.Popen[str]", on_serving: Callable[[str], None], port: HeldPort | None
) -> None:
    for line in process.stdout or ():
        if found := URL.search(line):
            on_serving(found[1])
        sys.stderr.write(f"tensorboard: {line}")
    sys.stderr.write(f"tensorboard: it exited with status {process.wait()}\n")
    if port is not None:
        port.close()
