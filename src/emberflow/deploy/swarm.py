"""Docker Swarm: the services of Compose as a stack, on a network over all hosts."""

from emberflow._plan import deadlines
from emberflow.deploy.compose import KEY, NETWORK, named_volumes, service_of, tasks_of
from emberflow.deploy.documents import Document, without_none
from emberflow.deploy.job import Job, RoleName
from emberflow.deploy.memory import mebibytes
from emberflow.deploy.tasks import check_key
from emberflow.errors import ConfigError

VERSION = "3.8"  # `docker stack deploy` still asks for one
IMAGE_USER = "10001"  # of docker/Dockerfile
GPU_KIND = "NVIDIA-GPU"  # the name under which the daemons of hosts with GPUs announce them


def render(job: Job) -> list[Document]:
    """Return the file of the stack."""
    check_key(job, named=True, target="Docker Swarm")
    services: Document = {}
    for task in tasks_of(job):
        service = service_of(job, task)
        service["deploy"] = _deploy(job, task.role)
        for secret in service.get("secrets", ()):
            if secret["source"] == KEY:  # readable for all by default
                secret |= {"uid": IMAGE_USER, "gid": IMAGE_USER, "mode": 0o440}
        services[f"{task.role}-{task.index}"] = service
    return [
        without_none(
            {
                "version": VERSION,
                "services": services,
                "networks": {NETWORK: {"driver": "overlay", "attachable": True}},
                "volumes": named_volumes(job),
                "secrets": _secrets(job),
            }
        )
    ]


def _deploy(job: Job, role: RoleName) -> Document:
    need = job.roles[role]
    memory = f"{mebibytes(need.memory)}M"
    reservations: Document = {"cpus": str(need.cpu), "memory": memory}
    if need.gpu:
        resource = {"discrete_resource_spec": {"kind": GPU_KIND, "value": need.gpu}}
        reservations["generic_resources"] = [resource]
    restart: Document = {"condition": "none"}
    if job.restarts:
        restart = {
            "condition": "on-failure",
            "delay": f"{deadlines.RENDERED_RETRY_PAUSE}s",
            "max_attempts": job.restarts,
        }
    deploy: Document = {"replicas": 1}
    if role != "tensorboard":  # whose port is published, which needs a virtual address
        deploy["endpoint_mode"] = "dnsrr"  # the name of a task is the address of its container
    resources = {"limits": {"memory": memory}, "reservations": reservations}
    return {**deploy, "restart_policy": restart, "resources": resources}


def _secrets(job: Job) -> Document | None:
    secrets: Document = {}
    for place, secret in enumerate(job.secrets):
        if not secret.name:
            raise ConfigError(
                f"Docker Swarm mounts secrets by name. Received: secrets[{place}].name=None.",
                fix="Create it with `docker secret create NAME FILE`, and add `name: NAME`.",
            )
        secrets[f"secret-{place}"] = {"external": True, "name": secret.name}
    if job.key_secret:
        secrets[KEY] = {"external": True, "name": job.key_secret.name}
    return secrets or None
