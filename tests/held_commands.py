"""Commands of Emberflow that stay up until Ctrl-C, as a person runs them."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

EMBERFLOW = [sys.executable, "-m", "emberflow.cli.main"]


@contextmanager
def running_command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the command; yield it and what it said until it was up."""
    # Tests that were started in the background may ignore Ctrl-C, and so would what they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen([*EMBERFLOW, *arguments], stdout=subprocess.PIPE, text=True) as process:
        signal.signal(signal.SIGINT, before)
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C stops it" in line:
                break
        try:
            yield process, said
        finally:
            process.kill()
