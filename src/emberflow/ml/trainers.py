"""What each node runs for the estimator, by the strategy's name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from emberflow.ml.asynchronous import train_on_servers, train_periodically
from emberflow.ml.training import Trained, Training, train_in_step

if TYPE_CHECKING:
    from emberflow._node.context import Context

TRAINERS: Mapping[str, Callable[[Training, "Context"], Trained | None]] = MappingProxyType(
    {
        "data_parallel": train_in_step,
        "parameter_server": train_on_servers,
        "periodic": train_periodically,
    }
)
