"""`python -m emberflow.node FILE.py:FUNCTION`: one task that a cluster manager has started, without Spark.

Exit codes: 0, all is done; 1, your function raised on some task; 2, wrong arguments, variables, key or data; 3, a
task was lost or did not come, and the next start may succeed; 143, this task was told to end (SIGTERM).
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from emberflow._managed.options import read_command
from emberflow._managed.task import run_task
from emberflow._managed.verdict import verdict_of
from emberflow.errors import EmberflowError


def main(words: Sequence[str]) -> int:
    """Run the task of this process; return its exit code."""
    logging.basicConfig(format="emberflow: %(message)s", level=logging.WARNING)
    logging.getLogger("emberflow").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, _end)  # the first process of a container ignores it otherwise
    command = read_command(words)
    environment = dict(os.environ)
    os.environ.pop("TF_CONFIG", None)  # the node's own is made once all tasks have met
    try:
        verdict = run_task(command, environment)
    except EmberflowError as error:
        verdict = verdict_of(error)
    if verdict.text:
        sys.stderr.write(f"{verdict.text}\n")
    else:
        logging.getLogger("emberflow").info("done")
    return verdict.code


def _end(number: int, frame: Any) -> NoReturn:  # noqa: ARG001
    """End this task and its node; a second signal must not interrupt that."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
