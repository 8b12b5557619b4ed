"""Typed models of what Marathon and Docker Swarm document: the fields, and the types of their values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PortDefinition:
    port: int
    protocol: Literal["tcp", "udp"]
    name: str


@dataclass(frozen=True)
class Network:
    mode: Literal["host", "container", "container/bridge"]


@dataclass(frozen=True)
class DockerImage:
    image: str
    forcePullImage: bool = False  # noqa: N815


@dataclass(frozen=True)
class HostVolume:
    containerPath: str  # noqa: N815
    hostPath: str  # noqa: N815
    mode: Literal["RO", "RW"]


@dataclass(frozen=True)
class Container:
    type: Literal["MESOS", "DOCKER"]
    docker: DockerImage
    volumes: tuple[HostVolume, ...]


@dataclass(frozen=True)
class UpgradeStrategy:
    minimumHealthCapacity: float  # noqa: N815
    maximumOverCapacity: float  # noqa: N815


@dataclass(frozen=True)
class MarathonApp:
    id: str
    instances: int
    cpus: float
    mem: int
    cmd: str
    env: Mapping[str, str]
    networks: tuple[Network, ...]
    portDefinitions: tuple[PortDefinition, ...]  # noqa: N815
    requirePorts: bool  # noqa: N815
    container: Container
    upgradeStrategy: UpgradeStrategy  # noqa: N815
    gpus: int = 0


@dataclass(frozen=True)
class MarathonGroup:
    id: str
    apps: tuple[MarathonApp, ...]


@dataclass(frozen=True)
class DiscreteResource:
    kind: str
    value: int


@dataclass(frozen=True)
class GenericResource:
    discrete_resource_spec: DiscreteResource


@dataclass(frozen=True)
class Amounts:
    memory: str
    cpus: str | None = None
    generic_resources: tuple[GenericResource, ...] = ()


@dataclass(frozen=True)
class Resources:
    limits: Amounts
    reservations: Amounts


@dataclass(frozen=True)
class Restart:
    condition: Literal["none", "on-failure", "any"]
    delay: str | None = None
    max_attempts: int | None = None


@dataclass(frozen=True)
class Deploy:
    replicas: int
    restart_policy: Restart
    resources: Resources
    endpoint_mode: Literal["vip", "dnsrr"] = "vip"


@dataclass(frozen=True)
class Mount:
    type: Literal["volume", "bind", "tmpfs"]
    target: str
    source: str | None = None
    read_only: bool = False


@dataclass(frozen=True)
class MountedSecret:
    source: str
    target: str
    uid: str = "0"
    gid: str = "0"
    mode: int = 0o444


@dataclass(frozen=True)
class SwarmService:
    """A service of a stack: `docker stack deploy` has neither profiles nor restart nor container names."""

    image: str
    working_dir: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    networks: tuple[str, ...]
    deploy: Deploy
    ports: tuple[str, ...] = ()
    volumes: tuple[Mount, ...] = ()
    secrets: tuple[MountedSecret, ...] = ()


@dataclass(frozen=True)
class SwarmNetwork:
    driver: Literal["overlay"]
    attachable: bool = False


@dataclass(frozen=True)
class External:
    external: bool
    name: str


@dataclass(frozen=True)
class SwarmStack:
    version: Literal["3.8"]
    services: Mapping[str, SwarmService]
    networks: Mapping[str, SwarmNetwork]
    volumes: Mapping[str, External] | None = None
    secrets: Mapping[str, External] | None = None
