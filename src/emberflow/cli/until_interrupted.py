"""Servers of a command that stay up until Ctrl-C, and the line that tells another terminal of them."""

import shlex
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import FrameType
from typing import TypeVar

from rich.console import Console

from emberflow.cli.exit_codes import exit_code_of

Servers = TypeVar("Servers")


def keep_until_interrupted(
    servers: AbstractContextManager[Servers], print_usage: Callable[[Console, Servers], None]
) -> int:
    """Start servers, print how to use them, wait for Ctrl-C; return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)  # `kill` and `docker stop` then clean up as Ctrl-C does

    def serve(console: Console) -> None:
        try:
            with servers as running:
                print_usage(console, running)
                threading.Event().wait()
        except KeyboardInterrupt:
            console.print("\nStopped. No process is left.")

    return exit_code_of(serve)


def export_line(settings: Mapping[str, object]) -> str:
    """Return the shell command that sets environment variables."""
    return "export " + " ".join(f"{name}={shlex.quote(str(value))}" for name, value in settings.items())


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    raise KeyboardInterrupt
