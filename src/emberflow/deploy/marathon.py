"""Marathon on Mesos: a group with an app for each task, on the network of the hosts, each with ports of its own."""

import shlex

from emberflow.deploy.documents import Document
from emberflow.deploy.job import Job, RoleName
from emberflow.deploy.memory import mebibytes
from emberflow.deploy.tasks import Task, check_key, cluster_of, places_of, port_of, task_of
from emberflow.errors import ConfigError

DOMAIN = "marathon.mesos"  # of Mesos-DNS
KEY_FILE = "/var/run/emberflow/key"


def render(job: Job) -> list[Document]:
    """Return the group. Marathon starts an app again also after it is done: delete the group then."""
    check_key(job, named=False, target="Marathon")
    places = places_of(job)
    ports = {place: _port(job, place, number) for number, place in enumerate(places)}
    cluster = cluster_of(job, lambda role, index: f"{role}-{index}-{job.name}.{DOMAIN}:{ports[role, index]}")
    key_file = KEY_FILE if job.key_secret else None
    tasks = [
        (task_of(job, role, str(index), cluster, key_file), ports[role, index]) for role, index in places
    ]
    return [{"id": f"/{job.name}", "apps": [_app(job, task, port) for task, port in tasks]}]


def _port(job: Job, place: tuple[RoleName, int], number: int) -> int:
    # Tasks of one host share its ports: two for each, TensorFlow's and ours.
    return port_of(job, "tensorboard") if place[0] == "tensorboard" else job.port + 2 * number


def _app(job: Job, task: Task, port: int) -> Document:
    need = job.roles[task.role]
    ports = [{"port": port, "protocol": "tcp", "name": "tensorflow"}]
    if task.role != "tensorboard":
        ports.append({"port": port + 1, "protocol": "tcp", "name": "emberflow"})
    return {
        "id": f"/{job.name}/{task.role}-{task.index}",
        "instances": 1,
        "cpus": need.cpu,
        "mem": mebibytes(need.memory),
        **({"gpus": need.gpu} if need.gpu else {}),
        "cmd": f"cd {shlex.quote(job.working_dir)} && exec {shlex.join(task.command)}",
        "env": task.env,
        "networks": [{"mode": "host"}],
        "portDefinitions": ports,
        "requirePorts": True,
        "container": {
            "type": "MESOS",
            "docker": {"image": job.image},
            "volumes": _volumes(job),
        },
        "upgradeStrategy": {"minimumHealthCapacity": 0, "maximumOverCapacity": 0},
    }


def _volumes(job: Job) -> list[Document]:
    volumes: list[Document] = []
    for place, volume in enumerate(job.volumes):
        if volume.claim and not volume.host_path:
            raise ConfigError(
                f"Marathon has no claims. Received: volumes[{place}].claim={volume.claim!r}.",
                fix=f"Mount shared storage on every agent, and write `host_path: /FOLDER` in volumes[{place}].",
            )
        if volume.host_path:
            mode = "RO" if volume.read_only else "RW"
            volumes.append({"containerPath": volume.mount, "hostPath": volume.host_path, "mode": mode})
    for place, secret in enumerate(job.secrets):
        file = _file(secret.file, f"secrets[{place}]")
        name = file.rsplit("/", 1)[-1]
        volumes.append({"containerPath": f"{secret.mount}/{name}", "hostPath": file, "mode": "RO"})
    if job.key_secret:
        file = _file(job.key_secret.file, "key_secret")
        volumes.append({"containerPath": KEY_FILE, "hostPath": file, "mode": "RO"})
    return volumes


def _file(file: str | None, path: str) -> str:
    if not file or not file.startswith("/"):
        raise ConfigError(
            f"Marathon mounts a file of each agent. Received: {path}.file={file!r}.",
            fix=f"Put the file on every agent, and write its absolute path: `{path}.file=/etc/emberflow/FILE`.",
        )
    return file
