"""The settings of Spark for a job: an executor with one slot for each node."""

import math
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from emberflow._managed.options import program_place
from emberflow.deploy.job import NODE_COMMAND, Job, Volume
from emberflow.deploy.memory import mebibytes
from emberflow.deploy.placeholders import PLACEHOLDERS, fill
from emberflow.deploy.tasks import RUNS_PROGRAM, roles_of
from emberflow.errors import ConfigError

SPARK_VERSION = "4.3.0"
JVM_MEMORY = "1g"  # of an executor's JVM; nodes are processes beside it
DISCOVERY_SCRIPT = "/opt/emberflow/gpus.sh"  # in the image of docker/Dockerfile


@dataclass(frozen=True)
class Application:
    """The program that Spark's driver runs."""

    file: str
    args: tuple[str, ...]


def application_of(job: Job) -> Application:
    """Return your program as Spark submits it: the file itself, whose main block calls ``ef.run``.

    >>> application_of(Job(name="a", image="b", args=("train.py:train", "--epochs", "3")))
    Application(file='train.py', args=('--epochs', '3'))
    """
    words = job.args[program_place(job.args) :] if job.command == NODE_COMMAND else (*job.command, *job.args)
    for place, word in enumerate(words):
        file = word.partition(":")[0]
        if file.endswith(".py"):
            return Application(file, tuple(_filled(job, each) for each in words[place + 1 :]))
    raise ConfigError(
        f"Spark submits a Python file. Received: args={list(job.args)}.",
        fix="Name your program in args: `args: [train.py:train]`.",
    )


def _filled(job: Job, text: str) -> str:
    """Fill in what is the same for all nodes; on Spark a node learns the rest from its context."""
    filled = fill(text, {"name": job.name})
    for name in PLACEHOLDERS:
        if f"{{{name}}}" in filled:
            raise ConfigError(
                f"Spark starts one program, not one for each task: {{{name}}} has no value. Received: {text!r}.",
                fix="Use ctx.role, ctx.index and ctx.cluster_spec in the function, or render another target.",
            )
    return filled


def image_url(job: Job, file: str) -> str:
    """Return a file of the image as Spark names it.

    >>> image_url(Job(name="a", image="b"), "train.py")
    'local:///app/train.py'
    """
    return f"local://{posixpath.join(job.working_dir, file)}"


def node_count(job: Job) -> int:
    """Return how many nodes, and so executors, the job has; refuse roles that Spark has no task for."""
    for role in roles_of(job):
        if role not in RUNS_PROGRAM:
            raise ConfigError(
                f"Spark has no task for the role {role}. Received: roles={sorted(job.roles)}.",
                fix=f"Pass --set roles.{role}=null, or render another target"
                + (", and pass tensorboard= to `ef.run`." if role == "tensorboard" else "."),
            )
    return sum(job.roles[role].replicas for role in roles_of(job))


def executor_settings(job: Job, *, kubernetes: bool) -> dict[str, str]:
    """Return the settings of the executors, which are all alike: each is as large as the largest node."""
    nodes, roles = node_count(job), job.roles.values()
    cores = max(math.ceil(each.cpu) for each in roles)
    settings = {
        "spark.executor.instances": str(nodes),
        "spark.executor.cores": str(cores),
        "spark.task.cpus": str(cores),
        "spark.executor.memory": JVM_MEMORY,
        "spark.executor.memoryOverhead": f"{max(mebibytes(each.memory) or 0 for each in roles)}m",
        "spark.dynamicAllocation.enabled": "false",
    }
    gpus = max(each.gpu for each in roles)
    if gpus:
        settings |= {
            "spark.executor.resource.gpu.amount": str(gpus),
            "spark.executor.resource.gpu.discoveryScript": DISCOVERY_SCRIPT,
            "spark.task.resource.gpu.amount": str(gpus),
        }
        if kubernetes:
            settings["spark.executor.resource.gpu.vendor"] = "nvidia.com"
    return settings


def executor_environment(job: Job) -> dict[str, str]:
    """Return the variables of the executors; `ps="auto"` of ``ef.run`` reads one of them."""
    env = {name: _filled(job, text) for name, text in job.env.items()}
    return env | ({"NUM_TF_PS": str(job.roles["ps"].replicas)} if "ps" in job.roles else {})


def kubernetes_settings(job: Job) -> dict[str, str]:
    """Return the settings for Spark on Kubernetes: image, namespace, volumes, secrets."""
    settings = {
        "spark.kubernetes.namespace": job.namespace,
        "spark.kubernetes.container.image": job.image,
    }
    if job.service_account:
        settings["spark.kubernetes.authenticate.driver.serviceAccountName"] = job.service_account
    for side in ("driver", "executor"):
        for place, secret in enumerate(job.secrets):
            if not secret.name:
                raise ConfigError(
                    f"Kubernetes mounts secrets by name. Received: secrets[{place}].name=None.",
                    fix="Create it with `kubectl create secret generic`, and add `name: NAME`.",
                )
            settings[f"spark.kubernetes.{side}.secrets.{secret.name}"] = str(secret.mount)
        for volume in job.volumes:
            settings |= _volume_settings(side, volume)
    return settings | {
        f"spark.kubernetes.driverEnv.{name}": value for name, value in executor_environment(job).items()
    }


def _volume_settings(side: str, volume: Volume) -> Iterator[tuple[str, str]]:
    kind = "persistentVolumeClaim" if volume.claim else "hostPath" if volume.host_path else "emptyDir"
    prefix = f"spark.kubernetes.{side}.volumes.{kind}.{volume.name}"
    yield f"{prefix}.mount.path", volume.mount
    yield f"{prefix}.mount.readOnly", str(volume.read_only).lower()
    if volume.claim:
        yield f"{prefix}.options.claimName", volume.claim
    elif volume.host_path:
        yield f"{prefix}.options.path", volume.host_path
