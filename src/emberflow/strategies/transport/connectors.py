"""How a rank obtains its transport, by the transport's name.

A connector exists before the ranks know each other and says what the others must know of this rank (`endpoint`). It
joins them before your function runs, and connects when the first model needs the transport.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from emberflow._choices import Transport as TransportName
from emberflow._plan.tf_config import TFConfig
from emberflow._protocol.sockets import address_of, host_and_port, listen
from emberflow.config import PortRange
from emberflow.errors import ConfigError
from emberflow.strategies.transport.host_key import host_key

if TYPE_CHECKING:
    from emberflow.strategies.transport.collectives import Collectives
    from emberflow.strategies.transport.interface import Transport

log = logging.getLogger("emberflow")

Endpoint = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class RankSpec:
    """What a connector must know of its rank.

    Attributes:
        rank: Its number, from 0.
        host: The interface that other ranks dial.
        key: The run's secret.
        port_range: Ports that it may listen on; None for any.
        join_timeout: Seconds until all ranks must be connected.
        exchange_timeout: Seconds after which a rank that does not answer during training is an error.
        encrypt: Whether what ranks exchange is encrypted.
    """

    rank: int
    host: str
    key: bytes = field(repr=False)
    port_range: PortRange | None
    join_timeout: float
    exchange_timeout: float
    encrypt: bool = False


class Connector(Protocol):
    """One rank's way to its transport."""

    @property
    def endpoint(self) -> Endpoint:
        """What the other ranks must know of this one, by name."""

    @property
    def tf_strategy(self) -> Any | None:
        """The `tf.distribute` strategy whose server runs in this process since `join`; None if there is none."""

    def join(self, endpoints: Sequence[Endpoint], tf_config: TFConfig) -> None:
        """Learn the endpoints of all nodes; before your function runs."""

    def connect(self) -> "Transport":
        """Connect to the other ranks, all of which must do the same."""


class SingleRankConnector:
    """For a rank that exchanges with nobody: sums and gathers return what they are given."""

    endpoint: Endpoint = {}  # noqa: RUF012 - never changed
    tf_strategy = None

    def join(self, endpoints: Sequence[Endpoint], tf_config: TFConfig) -> None:
        """Nothing to learn."""

    def connect(self) -> "Transport":
        """Return a ring of one rank."""
        from emberflow.strategies.transport.ring import Ring

        return Ring.of_one()


class RingConnector:
    """The socket ring. It listens from the beginning, so that its address can be sent to the other ranks."""

    tf_strategy = None

    def __init__(self, spec: RankSpec) -> None:
        self._spec = spec
        self._listener = listen(spec.host, ports=spec.port_range, what="the ring between ranks")
        self._address = address_of(spec.host, self._listener.getsockname()[1])
        self._endpoints: list[Endpoint] = []

    @property
    def endpoint(self) -> Endpoint:
        """Our address in the ring, and by what ranks know that they can share memory."""
        return {"ring": self._address, "host": host_key()}

    def join(self, endpoints: Sequence[Endpoint], tf_config: TFConfig) -> None:  # noqa: ARG002
        """Keep the endpoints of all ranks."""
        self._endpoints = [each for each in endpoints if "ring" in each]

    def connect(self) -> "Transport":
        """Connect to the other ranks."""
        from emberflow.strategies.transport.ring import Ring
        from emberflow.strategies.transport.ring_joining import Listener

        return Ring.connect(
            Listener(address=self._address, sock=self._listener),
            rank=self._spec.rank,
            addresses=[each["ring"] for each in self._endpoints],
            key=self._spec.key,
            timeout=self._spec.join_timeout,
            receive_timeout=self._spec.exchange_timeout,
            encrypt=self._spec.encrypt,
            hosts=[each["host"] for each in self._endpoints],
        )


class CollectivesConnector:
    """TensorFlow's collectives. They start when the rank joins: TensorFlow requires them before any operation."""

    endpoint: Endpoint = {}  # noqa: RUF012 - TF_CONFIG has the addresses

    def __init__(self, spec: RankSpec) -> None:
        self._spec = spec
        self._collectives: Collectives | None = None

    @property
    def tf_strategy(self) -> Any | None:
        """The strategy that started the collectives."""
        return None if self._collectives is None else self._collectives.strategy

    def join(self, endpoints: Sequence[Endpoint], tf_config: TFConfig) -> None:  # noqa: ARG002
        """Start TensorFlow's server and wait for the other ranks."""
        from emberflow.strategies.transport.collectives import start_collectives

        log.warning("%s", open_server_notice(tf_config))
        limit = self._spec.exchange_timeout
        self._collectives = start_collectives(json.dumps(tf_config), receive_timeout=limit)

    def connect(self) -> "Transport":
        """Return what `join` has started."""
        assert self._collectives is not None  # noqa: S101 - `join` comes first, for the type checker
        return self._collectives


def open_server_notice(tf_config: TFConfig) -> str:
    """Return the line that says which port TensorFlow's server is about to open, and how to do without it.

    >>> config = {"cluster": {"worker": ["a:1", "[::1]:2"]}, "task": {"type": "worker", "index": 1}}
    >>> open_server_notice(config)[:74]
    "TensorFlow's server opens port 2 on all interfaces of this host, before yo"
    """
    task = tf_config["task"]
    _, port = host_and_port(tf_config["cluster"][task["type"]][task["index"]])
    return (
        f"TensorFlow's server opens port {port} on all interfaces of this host, before your function: collectives "
        'need it. It has neither authentication nor encryption. Pass transport="none" if your function calls neither '
        'ctx.distribute nor ctx.strategy, or transport="ring".'
    )


class NoTransportConnector:
    """For ranks that exchange nothing: no port is opened."""

    endpoint: Endpoint = {}  # noqa: RUF012 - never changed
    tf_strategy = None

    def __init__(self, spec: RankSpec) -> None:
        """Nothing of the rank must be known."""

    def join(self, endpoints: Sequence[Endpoint], tf_config: TFConfig) -> None:
        """Nothing to learn."""

    def connect(self) -> "Transport":
        """Refuse: there is no way to the other ranks."""
        raise ConfigError(
            'ctx.distribute and ctx.all_gather need a transport between the workers. Received: transport="none".',
            fix='Leave transport="none" out, or pass transport="ring".',
        )


CONNECTORS: Mapping[TransportName, Callable[[RankSpec], Connector]] = MappingProxyType(
    {"ring": RingConnector, "collectives": CollectivesConnector, "none": NoTransportConnector}
)
