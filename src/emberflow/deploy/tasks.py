"""The tasks of a job: their addresses, their command and their environment."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from emberflow.deploy.job import NODE_COMMAND, Job, RoleName
from emberflow.deploy.placeholders import fill
from emberflow.errors import ConfigError

ROLE_ORDER: tuple[RoleName, ...] = (
    "chief",
    "worker",
    "ps",
    "evaluator",
    "dispatcher",
    "data-worker",
    "tensorboard",
)
TRAINING = (
    "chief",
    "worker",
    "ps",
)  # TensorFlow's cluster; its collectives would wait for an evaluator in it
RUNS_PROGRAM = (*TRAINING, "evaluator")
TENSORBOARD_PORT = 6006

Address = Callable[[RoleName, int], str]
Cluster = dict[str, list[str]]


@dataclass(frozen=True)
class Task:
    """One task: a role, and its index in it as text, which may be a reference that the cluster manager expands."""

    role: RoleName
    index: str
    command: tuple[str, ...]
    env: dict[str, str]


def roles_of(job: Job) -> tuple[RoleName, ...]:
    """Return the roles that the job has, the chief first."""
    return tuple(role for role in ROLE_ORDER if role in job.roles)


def places_of(job: Job) -> list[tuple[RoleName, int]]:
    """Return role and index of every task.

    >>> from emberflow.deploy import Role
    >>> places_of(Job(name="a", image="b", roles={"worker": Role(replicas=2)}))
    [('worker', 0), ('worker', 1)]
    """
    return [(role, index) for role in roles_of(job) for index in range(job.roles[role].replicas)]


def port_of(job: Job, role: RoleName) -> int:
    """Return the port of a task that has an address of its own."""
    return TENSORBOARD_PORT if role == "tensorboard" else job.port


def cluster_of(job: Job, address: Address) -> Cluster:
    """Return the addresses of all tasks by role."""
    cluster: Cluster = {}
    for role, index in places_of(job):
        cluster.setdefault(role, []).append(address(role, index))
    return cluster


def task_of(job: Job, role: RoleName, index: str, cluster: Cluster, key_file: str | None) -> Task:
    """Return a task: its command and its environment, with the placeholders filled."""
    values = {"name": job.name, "job_name": role, "task_index": index}
    values |= {f"{each}_hosts": ",".join(cluster.get(each, ())) for each in TRAINING}
    env = {name: fill(text, values) for name, text in job.env.items()}
    env |= {"EMBERFLOW_ROLE": role, "EMBERFLOW_INDEX": index, "EMBERFLOW_CLUSTER": json.dumps(cluster)}
    if key_file:
        env["EMBERFLOW_KEY_FILE"] = key_file
    if role in RUNS_PROGRAM:
        env["TF_CONFIG"] = _tf_config(role, index, cluster)
        return Task(role, index, tuple(fill(word, values) for word in (*job.command, *job.args)), env)
    extra = ("--log-dir", job.log_dir or "") if role == "tensorboard" else ()
    return Task(role, index, (*NODE_COMMAND, *extra), env)


def check_key(job: Job, *, named: bool, target: str) -> None:
    """Refuse to render tasks that could not authenticate each other; a rendering never invents a key."""
    secret = job.key_secret
    has_nodes = job.command == NODE_COMMAND or set(job.roles) - set(RUNS_PROGRAM)
    if secret is None and has_nodes and len(places_of(job)) > 1:
        raise ConfigError(
            "`key_secret` is missing: tasks authenticate each other with the run's key. Received: key_secret=None.",
            fix=_named_key_fix(job) if named else _file_key_fix(),
        )
    if secret and named and not secret.name:
        raise ConfigError(
            f"{target} takes the run's key from a secret. Received: key_secret.name=None.",
            fix=_named_key_fix(job),
        )
    if secret and not named and not secret.file:
        raise ConfigError(
            f"{target} takes the run's key from a file. Received: key_secret.file=None.", fix=_file_key_fix()
        )


def _named_key_fix(job: Job) -> str:
    return (
        f"Create a secret with an item `key`, and name it: `key_secret: {job.name}-key`; "
        "for Kubernetes: openssl rand -hex 32 > run.key && "
        f"kubectl create secret generic {job.name}-key --from-file=key=run.key."
    )


def _file_key_fix() -> str:
    return "Create it with `openssl rand -hex 32 > run.key`, and name it: `key_secret: {file: ./run.key}`."


def _tf_config(role: RoleName, index: str, cluster: Cluster) -> str:
    spec = {each: cluster[each] for each in TRAINING if each in cluster}
    task = {"type": role, "index": int(index) if index.isdigit() else index}
    text = json.dumps({"cluster": spec, "task": task})
    return text.replace(
        json.dumps(index), index
    )  # a reference expands to a whole number, which has no quotes
