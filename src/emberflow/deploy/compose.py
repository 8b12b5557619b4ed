"""Docker Compose: a service for each task, on one network."""

import itertools
from collections.abc import Iterator

from emberflow.deploy.documents import Document, without_none
from emberflow.deploy.job import Job, RoleName
from emberflow.deploy.memory import mebibytes
from emberflow.deploy.tasks import (
    TENSORBOARD_PORT,
    Task,
    check_key,
    cluster_of,
    places_of,
    port_of,
    task_of,
)
from emberflow.errors import ConfigError

KEY = "emberflow-key"
KEY_FILE = f"/run/secrets/{KEY}"
NETWORK = "cluster"


def render(job: Job) -> list[Document]:
    """Return the file of Compose."""
    check_key(job, named=False, target="Docker Compose")
    services: Document = {}
    gpus = itertools.count()
    for task in tasks_of(job):
        service = service_of(job, task)
        service["restart"] = f"on-failure:{job.restarts}" if job.restarts else "no"
        service |= _resources(job, task.role, gpus)
        if task.role == "tensorboard":  # started by `docker compose --profile tensorboard up`
            service["profiles"] = ["tensorboard"]
        services[f"{task.role}-{task.index}"] = service
    return [
        without_none(
            {
                "name": job.name,
                "services": services,
                "networks": {NETWORK: {"driver": "bridge"}},
                "volumes": named_volumes(job),
                "secrets": _secrets(job),
            }
        )
    ]


def tasks_of(job: Job) -> list[Task]:
    """Return all tasks, which find each other by the names of their services."""
    cluster = cluster_of(job, lambda role, index: f"{role}-{index}:{port_of(job, role)}")
    key_file = KEY_FILE if job.key_secret else None
    return [task_of(job, role, str(index), cluster, key_file) for role, index in places_of(job)]


def service_of(job: Job, task: Task) -> Document:
    """Return what the service of a task has in Compose and in Swarm."""
    secrets: list[Document] = [
        {
            "source": f"secret-{place}",
            "target": f"{secret.mount}/{secret_file_name(secret.file, secret.name)}",
        }
        for place, secret in enumerate(job.secrets)
    ]
    if job.key_secret:
        secrets.append({"source": KEY, "target": KEY_FILE})
    service = {
        "image": job.image,
        "working_dir": job.working_dir,
        "command": [_literal(word) for word in task.command],
        "environment": {name: _literal(text) for name, text in task.env.items()},
        "networks": [NETWORK],
        "ports": [f"{TENSORBOARD_PORT}:{TENSORBOARD_PORT}"] if task.role == "tensorboard" else None,
        "volumes": _mounts(job) or None,
        "secrets": secrets or None,
    }
    return without_none(service)


def named_volumes(job: Job) -> Document | None:
    """Return the volumes that exist already, by the names that services use."""
    claimed = [each for each in job.volumes if each.claim]
    return {each.name: {"external": True, "name": each.claim} for each in claimed} or None


def secret_file_name(file: str | None, name: str | None) -> str:
    """Return the name of a secret's file in its folder.

    >>> secret_file_name("./gcs.json", "gcs"), secret_file_name(None, "gcs")
    ('gcs.json', 'gcs')
    """
    return file.rsplit("/", 1)[-1] if file else str(name)


def _mounts(job: Job) -> list[Document]:
    mounts: list[Document] = []
    for volume in job.volumes:
        if volume.temporary:
            mount: Document = {"type": "tmpfs", "target": volume.mount}
        elif volume.claim:
            mount = {"type": "volume", "source": volume.name, "target": volume.mount}
        else:
            mount = {"type": "bind", "source": volume.host_path, "target": volume.mount}
        mounts.append(mount | ({"read_only": True} if volume.read_only else {}))
    return mounts


def _resources(job: Job, role: RoleName, gpus: Iterator[int]) -> Document:
    need = job.roles[role]
    limits = {"cpus": str(need.cpu), "memory": f"{mebibytes(need.memory)}m"}
    resources: Document = {"limits": limits}
    if need.gpu:
        # By number, since a count would give the first GPUs of the host to every service.
        numbers = [str(each) for each in itertools.islice(gpus, need.gpu)]
        device = {"driver": "nvidia", "device_ids": numbers, "capabilities": ["gpu"]}
        resources["reservations"] = {"devices": [device]}
    return {"deploy": {"resources": resources}}


def _secrets(job: Job) -> Document | None:
    secrets: Document = {}
    for place, secret in enumerate(job.secrets):
        if not secret.file:
            raise ConfigError(
                f"Docker Compose mounts secrets from files. Received: secrets[{place}].file=None.",
                fix=f"Add `file: ./FILE` to secrets[{place}].",
            )
        secrets[f"secret-{place}"] = {"file": secret.file}
    if job.key_secret:
        secrets[KEY] = {"file": job.key_secret.file}
    return secrets or None


def _literal(text: str) -> str:
    return text.replace("$", "$$")  # Compose replaces $NAME by its own variables
