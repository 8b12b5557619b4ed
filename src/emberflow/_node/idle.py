"""What a node of an idle cluster runs: it keeps a process at hand from which nodes of later runs are forked."""

import json
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING

from emberflow._node.warm_starter import READY
from emberflow.errors import ClusterError

if TYPE_CHECKING:
    from emberflow._node.context import Context


def stay_idle(ctx: "Context") -> None:
    """Start the process, say that it is ready, and wait until the cluster is stopped."""
    feeds = ctx._feeds("rounds")  # noqa: SLF001 - it is our own function
    name = f"emberflow-warm-{secrets.token_hex(16)}"
    # In the node's process group: its keeper ends it with the node.
    starter = subprocess.Popen(
        [sys.executable, "-u", "-m", "emberflow._node.warm_starter"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdin is not None  # noqa: S101 - they are pipes, for the type checker
    assert starter.stdout is not None  # noqa: S101
    starter.stdin.write(json.dumps({"name": name, "key": feeds.warm_key.hex()}) + "\n")
    starter.stdin.flush()
    if starter.stdout.readline().strip() != READY:
        raise ClusterError(
            f"The process that imports TensorFlow for later runs must start. Received: it ended with status "
            f"{starter.wait()}.",
            fix="See the lines that it printed: the error's log tail has them.",
        )
    feeds.announce_warm(name)
    feeds.wait_until_over()
