"""What the user may choose. Checked here once, trusted everywhere below."""

from dataclasses import dataclass
from typing import Literal

from emberflow.errors import ConfigError

Count = int | Literal["auto"]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How `emberflow.run` starts its nodes.

    Attributes:
        workers: Nodes that train, the chief included; "auto" takes every slot Spark offers.
        start_timeout: Seconds until every node must have joined the others.
        verbose: Show the nodes' output and progress on the driver while they run.
        allow_unencrypted: Go on although the session asks for encryption, which the rows and
            TensorFlow's own traffic do not have.
        driver_host: The address executors dial to reach this process; None takes what Spark uses.
    """

    workers: Count
    start_timeout: float = 120.0
    verbose: bool = True
    allow_unencrypted: bool = False
    driver_host: str | None = None

    def __post_init__(self) -> None:
        check_count("workers", self.workers)
        if not is_number(self.start_timeout) or self.start_timeout <= 0:
            raise ConfigError(
                "`start_timeout` must be a number of seconds above 0. "
                f"Received: start_timeout={self.start_timeout!r}.",
                fix="Pass start_timeout=120.0, or leave it out.",
            )


def check_count(name: str, value: object) -> None:
    """Refuse anything but a whole number from 1 on, or "auto"."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return
    raise ConfigError(
        f'`{name}` must be a whole number, 1 or more, or "auto". Received: {name}={value!r}.',
        fix=f'Pass {name}=1 or higher, or {name}="auto" to take every slot Spark offers.',
    )


def is_number(value: object) -> bool:
    """Tell whether `value` is an int or float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)
