"""Names that a user may choose from, and what must be known of each choice before anything starts.

Implementations register under the same names: strategies in `_node/strategy_services.py` and `ml/trainers.py`,
transports in `strategies/transport/connectors.py`. A test compares them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from emberflow.errors import ConfigError

Strategy = Literal["data_parallel", "parameter_server", "periodic"]
Transport = Literal["ring", "collectives", "none"]
TransportChoice = Literal["auto", "ring", "collectives", "none"]
GpuSource = Literal["spark", "nvml"]
WireDtype = Literal["float32", "bfloat16"]

TRANSPORTS: tuple[Transport, ...] = get_args(Transport)


@dataclass(frozen=True, kw_only=True)
class StrategyFacts:
    """What config and plan must know of a strategy.

    Attributes:
        is_asynchronous: Whether each worker trains at its own pace. The run then needs a parameter server, and
            continues without a lost worker.
        least_workers: Workers that must start, the chief included.
        least_remaining: Workers beside the chief that must remain when others are lost.
    """

    is_asynchronous: bool
    least_workers: int = 1
    least_remaining: int = 0


STRATEGIES: Mapping[str, StrategyFacts] = MappingProxyType(
    {
        "data_parallel": StrategyFacts(is_asynchronous=False),
        # TensorFlow's ClusterCoordinator needs a worker beside the chief, at the start and until the end.
        "parameter_server": StrategyFacts(is_asynchronous=True, least_workers=2, least_remaining=1),
        "periodic": StrategyFacts(is_asynchronous=True),
    }
)


def check_choice(name: str, value: object, choices: Iterable[str], fix: str = "") -> None:
    """Refuse anything but one of the names.

    >>> check_choice("transport", "ring", ("auto", "ring"))
    >>> check_choice("transport", "wire", ("auto", "ring"))
    Traceback (most recent call last):
    emberflow.errors.ConfigError: `transport` must be "auto" or "ring". Received: transport='wire'.
    Fix: Pass transport="auto", or leave it out.
    """
    names = tuple(choices)
    if value not in names:
        raise ConfigError(
            f"`{name}` must be {one_of(names)}. Received: {name}={value!r}.",
            fix=fix or f'Pass {name}="{names[0]}", or leave it out.',
        )


def one_of(names: Iterable[str]) -> str:
    """Return names as an enumeration for a message.

    >>> one_of(["mean", "delta", "own"])
    '"mean", "delta" or "own"'
    """
    *first, last = (f'"{name}"' for name in names)
    return f"{', '.join(first)} or {last}" if first else last
