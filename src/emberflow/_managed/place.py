"""Which task of which cluster this process is, from the variables that a cluster manager sets."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from emberflow._plan.roles import Node, Role
from emberflow._protocol.sockets import address_of, host_and_port
from emberflow.errors import ConfigError

TENSORBOARD = "tensorboard"
ROLES: tuple[Role, ...] = ("chief", "worker", "ps", "evaluator", "dispatcher", "data-worker")
FIX = (
    "Start the task with what `emberflow render` writes; or set TF_CONFIG, or EMBERFLOW_ROLE, EMBERFLOW_INDEX and "
    "EMBERFLOW_CLUSTER."
)

Cluster = dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class Place:
    """One task of a cluster.

    Attributes:
        role: Its role, as the cluster manager names it.
        index: Its number within the role.
        cluster: The addresses of all tasks by role.
    """

    role: str
    index: int
    cluster: Cluster

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of this task; TensorFlow listens on that port."""
        return host_and_port(self.cluster[self.role][self.index])

    @property
    def chief_address(self) -> tuple[str, int]:
        """Host and port at which the chief listens for all tasks: the port after TensorFlow's."""
        host, port = host_and_port(self._addresses[0])
        return host, port + 1

    @property
    def has_chief(self) -> bool:
        """Whether tasks of this cluster train; a tf.data service by itself has none."""
        return any(role in self.cluster for role in ("chief", "worker"))

    @property
    def has_others(self) -> bool:
        """Whether there are other tasks, with which this one shares a key; tensorboard counts too."""
        return sum(map(len, self.cluster.values())) > 1

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the cluster; the first worker is the chief where there is none, as in a run on Spark.

        >>> place = Place(role="worker", index=1, cluster={"worker": ["a:1", "b:1"], "tensorboard": ["c:6006"]})
        >>> [node.name for node in place.nodes], place.rank, place.chief_address
        (['chief 0', 'worker 1'], 1, ('a', 2))
        """
        counts = {role: len(self.cluster.get(role, ())) for role in ROLES}
        if not counts["chief"] and counts["worker"]:
            counts |= {"chief": 1, "worker": counts["worker"] - 1}
        seats = [(role, index) for role in ROLES for index in range(counts[role])]
        return tuple(Node(rank, role, index) for rank, (role, index) in enumerate(seats))

    @property
    def rank(self) -> int:
        """The rank of this task's node."""
        return self._addresses.index(self.cluster[self.role][self.index])

    @property
    def _addresses(self) -> list[str]:
        return [address for role in ROLES for address in self.cluster.get(role, ())]


def read_place(environment: Mapping[str, str]) -> Place:
    """Return this task's place.

    Raises:
        ConfigError: The variables are missing or contradict each other.
    """
    given = _from_emberflow(environment) or _from_tf_config(environment)
    if given is None:
        raise ConfigError(
            "A task finds its place in TF_CONFIG or EMBERFLOW_CLUSTER. Received: neither is set.", fix=FIX
        )
    role, index, cluster = given
    if index >= len(cluster.get(role, ())):
        raise ConfigError(
            f"The task must be one of its cluster. Received: role={role!r}, index={index}, "
            f"and a cluster of {_described(cluster)}.",
            fix="An evaluator is no part of TF_CONFIG's cluster: set EMBERFLOW_CLUSTER with its address."
            if role == "evaluator"
            else FIX,
        )
    return Place(role=role, index=index, cluster=cluster)


def _from_emberflow(environment: Mapping[str, str]) -> tuple[str, int, Cluster] | None:
    text = environment.get("EMBERFLOW_CLUSTER")
    if not text:
        return None
    cluster = _cluster_of("EMBERFLOW_CLUSTER", _parsed("EMBERFLOW_CLUSTER", text))
    role = environment.get("EMBERFLOW_ROLE", "")
    if role not in (*ROLES, TENSORBOARD):
        known = ", ".join((*ROLES, TENSORBOARD))
        raise ConfigError(f"EMBERFLOW_ROLE must be one of {known}. Received: {role!r}.", fix=FIX)
    name = "EMBERFLOW_INDEX" if "EMBERFLOW_INDEX" in environment else "JOB_COMPLETION_INDEX"
    return role, _index_of(name, environment.get(name, "")), cluster


def _from_tf_config(environment: Mapping[str, str]) -> tuple[str, int, Cluster] | None:
    text = environment.get("TF_CONFIG")
    if not text:
        return None
    config = _parsed("TF_CONFIG", text)
    task = config.get("task")
    if not isinstance(task, dict) or not isinstance(task.get("type"), str):
        raise ConfigError(f"TF_CONFIG must name its task. Received: TF_CONFIG={text!r:.300}.", fix=FIX)
    cluster = _cluster_of("TF_CONFIG", config.get("cluster"))
    return task["type"], _index_of("TF_CONFIG's task.index", str(task.get("index", ""))), cluster


def _parsed(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{name} must be an object in JSON. Received: {name}={text!r:.300}.", fix=FIX)
    return value


def _cluster_of(name: str, value: Any) -> Cluster:
    """Return addresses by role, each of which is one of a single task."""
    cluster = {role: list(each) for role, each in value.items()} if isinstance(value, dict) else {}
    addresses = [each for of_role in cluster.values() for each in of_role]
    wrong = [*_wrong_addresses(addresses), *(set(cluster) - {*ROLES, TENSORBOARD})]
    if wrong or not addresses or len(set(addresses)) < len(addresses):
        raise ConfigError(
            f"The cluster of {name} must have different addresses HOST:PORT by role. "
            f"Received: {wrong[0] if wrong else value!r:.300}.",
            fix=FIX,
        )
    return cluster


def _wrong_addresses(addresses: list[Any]) -> Iterator[object]:
    for each in addresses:
        try:
            if address_of(*host_and_port(each)) != each:
                yield each
        except (ValueError, AttributeError):
            yield each


def _index_of(name: str, text: str) -> int:
    if not text.isdigit():
        raise ConfigError(f"{name} must be a whole number from 0 on. Received: {name}={text!r}.", fix=FIX)
    return int(text)


def _described(cluster: Cluster) -> str:
    return ", ".join(f"{role}: {len(addresses)}" for role, addresses in cluster.items())
