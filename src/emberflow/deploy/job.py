"""The description of a job: one for every cluster manager, checked when it is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from emberflow.deploy.checks import check_job
from emberflow.deploy.fields import converted_fields

RoleName = Literal["chief", "worker", "ps", "evaluator", "tensorboard", "dispatcher", "data-worker"]
RestartPolicy = Literal["on-failure", "never"]

NODE_COMMAND = ("python", "-m", "emberflow.node")


@dataclass(frozen=True, kw_only=True)
class Role:
    """The tasks of one role.

    Attributes:
        replicas: How many tasks.
        cpu: CPU cores of each; 0.5 is half a core.
        memory: Memory of each, such as 512Mi or 4Gi.
        gpu: GPUs of each.
    """

    replicas: int = 1
    cpu: float = 1
    memory: str = "2Gi"
    gpu: int = 0


@dataclass(frozen=True, kw_only=True)
class Volume:
    """Storage that every task mounts.

    Attributes:
        name: Its name in the rendering.
        mount: The folder in the containers.
        claim: An existing PersistentVolumeClaim, or a volume of Docker.
        host_path: A folder of each host; where there is a claim too, for Marathon only, which has none.
        temporary: An empty folder of each task, deleted with it.
        read_only: Whether tasks may only read it.
    """

    name: str
    mount: str
    claim: str | None = None
    host_path: str | None = None
    temporary: bool = False
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Secret:
    """Something secret that exists already; a rendering holds its name or path, never its content.

    Attributes:
        name: A Secret of Kubernetes, or a secret of Docker Swarm.
        file: A file: of the machine that runs Compose, or of each agent of Marathon.
        mount: The folder in the containers; not for `key_secret`, whose place is fixed.
    """

    name: str | None = None
    file: str | None = None
    mount: str | None = None

    @classmethod
    def from_text(cls, text: str) -> "Secret":
        """Return the secret that one word means: a path is a file, anything else a name.

        >>> Secret.from_text("run-key").name, Secret.from_text("./run.key").file
        ('run-key', './run.key')
        """
        return cls(file=text) if "/" in text else cls(name=text)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A distributed TensorFlow job, with or without Spark.

    Attributes:
        name: The name of everything that is rendered.
        image: The container image, with Emberflow and your program in it.
        args: What follows the command: your program as FILE.py:FUNCTION, then its own arguments.
        roles: The tasks by role: chief, worker, ps, evaluator, tensorboard, dispatcher, data-worker.
        command: What starts a task; a program of your own finds TF_CONFIG in its environment.
        namespace: The namespace of Kubernetes.
        working_dir: The folder in the image that your program is in.
        env: Environment variables of every task.
        port: TensorFlow's port; Emberflow's own is the next one.
        volumes: Storage that every task mounts.
        secrets: Secrets that every task mounts.
        key_secret: The run's key: a Secret with an item `key`, or a file. Tasks authenticate each other with it.
        service_account: The ServiceAccount of the tasks.
        restart_policy: Whether failed tasks are started again.
        max_restarts: How often, at most.
        time_to_live: Seconds after which a finished job is deleted; None: never.
        log_dir: The folder of event files that the role tensorboard shows.
        spark_conf: Settings of Spark, for the targets that run on it.
    """

    name: str
    image: str
    args: tuple[str, ...] = ()
    roles: Mapping[RoleName, Role] = field(default_factory=lambda: {"worker": Role()})
    command: tuple[str, ...] = NODE_COMMAND
    namespace: str = "default"
    working_dir: str = "/app"
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 2222
    volumes: tuple[Volume, ...] = ()
    secrets: tuple[Secret, ...] = ()
    key_secret: Secret | None = None
    service_account: str | None = None
    restart_policy: RestartPolicy = "on-failure"
    max_restarts: int = 3
    time_to_live: int | None = None
    log_dir: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in converted_fields(self).items():
            object.__setattr__(self, name, value)
        check_job(self)

    @property
    def restarts(self) -> int:
        """How often failed tasks are started again."""
        return self.max_restarts if self.restart_policy == "on-failure" else 0
