"""Pods of Kubernetes: containers, volumes and labels, the same for every target that makes pods."""

from emberflow._managed.verdict import WRONG_INPUT
from emberflow.deploy.documents import Document, without_none
from emberflow.deploy.job import Job, Role, RoleName
from emberflow.deploy.tasks import Cluster, Task, check_key, port_of, task_of
from emberflow.errors import ConfigError

KEY_FOLDER = "/var/run/emberflow"
GPU = "nvidia.com/gpu"
INDEX = "$(EMBERFLOW_INDEX)"  # the kubelet expands it in the command, and in variables that come later
INDEX_FIELD = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# Kubernetes mounts a secret for root and this group, which every process of the pod has whatever its user is.
KEY_MODE = 0o440
KEY_GROUP = {"fsGroup": 10001, "fsGroupChangePolicy": "OnRootMismatch"}


def labels_of(job: Job, role: RoleName | None = None) -> dict[str, str]:
    """Return the labels of an object."""
    labels = {"app.kubernetes.io/name": job.name, "app.kubernetes.io/managed-by": "emberflow"}
    return labels | ({"app.kubernetes.io/component": role} if role else {})


def metadata_of(job: Job, name: str, role: RoleName | None = None) -> Document:
    """Return the metadata of an object."""
    return {"name": name, "namespace": job.namespace, "labels": labels_of(job, role)}


def pod_template(
    job: Job, role: RoleName, cluster: Cluster, *, subdomain: str | None = None, container: str = "tensorflow"
) -> Document:
    """Return the template of a role's pods, whose indexes come from an Indexed Job."""
    task = task_of(job, role, INDEX, cluster, f"{KEY_FOLDER}/key" if job.key_secret else None)
    index: Document = {"name": "EMBERFLOW_INDEX", "valueFrom": {"fieldRef": {"fieldPath": INDEX_FIELD}}}
    return template_of(job, task, [index, *variables_of(task)], subdomain=subdomain, container=container)


def template_of(
    job: Job, task: Task, env: list[Document], *, subdomain: str | None = None, container: str = "tensorflow"
) -> Document:
    """Return the template of the pods of one task, with these variables."""
    check_key(job, named=True, target="Kubernetes")
    spec = {
        "restartPolicy": "Never",
        "subdomain": subdomain,
        "serviceAccountName": job.service_account,
        "securityContext": dict(KEY_GROUP) if job.key_secret else None,
        "containers": [
            without_none(
                {
                    "name": container,
                    "image": job.image,
                    "workingDir": job.working_dir,
                    "command": [_literal(word) for word in task.command],
                    "env": env,
                    "ports": _ports(job, task.role),
                    "resources": resources_of(job.roles[task.role]),
                    "volumeMounts": mounts_of(job) or None,
                }
            )
        ],
        "volumes": volumes_of(job) or None,
    }
    return {"metadata": {"labels": labels_of(job, task.role)}, "spec": without_none(spec)}


def variables_of(task: Task) -> list[Document]:
    """Return the variables of a task, without its index."""
    names = [name for name in task.env if name != "EMBERFLOW_INDEX"]
    return [{"name": name, "value": _literal(task.env[name])} for name in names]


def resources_of(role: Role) -> Document:
    """Return what one pod needs: memory is also its limit, CPU is not, since a limit only slows it down."""
    cpu = f"{round(role.cpu * 1000)}m" if role.cpu % 1 else str(int(role.cpu))
    gpus = {GPU: str(role.gpu)} if role.gpu else {}
    return {
        "requests": {"cpu": cpu, "memory": role.memory, **gpus},
        "limits": {"memory": role.memory, **gpus},
    }


def volumes_of(job: Job) -> list[Document]:
    """Return the volumes of a pod, that of the run's key included."""
    volumes: list[Document] = []
    for volume in job.volumes:
        if volume.claim:
            source: Document = {"persistentVolumeClaim": {"claimName": volume.claim}}
        elif volume.host_path:
            source = {"hostPath": {"path": volume.host_path}}
        else:
            source = {"emptyDir": {}}
        volumes.append({"name": volume.name, **source})
    for place, secret in enumerate(job.secrets):
        if not secret.name:
            raise ConfigError(
                f"Kubernetes mounts secrets by name. Received: secrets[{place}].name=None.",
                fix="Create it with `kubectl create secret generic NAME --from-file=FILE`, and add `name: NAME`.",
            )
        volumes.append({"name": f"secret-{place}", "secret": {"secretName": secret.name}})
    if job.key_secret:
        items = [{"key": "key", "path": "key"}]
        source = {"secretName": job.key_secret.name, "items": items, "defaultMode": KEY_MODE}
        volumes.append({"name": "emberflow-key", "secret": source})
    return volumes


def mounts_of(job: Job) -> list[Document]:
    """Return where a container mounts the volumes of its pod."""
    mounts: list[Document] = []
    for volume in job.volumes:
        read_only = {"readOnly": True} if volume.read_only else {}
        mounts.append({"name": volume.name, "mountPath": volume.mount, **read_only})
    for place, secret in enumerate(job.secrets):
        mounts.append({"name": f"secret-{place}", "mountPath": secret.mount, "readOnly": True})
    if job.key_secret:
        mounts.append({"name": "emberflow-key", "mountPath": KEY_FOLDER, "readOnly": True})
    return mounts


def headless_service(job: Job, name: str) -> Document:
    """Return the Service that gives every pod a name, also before it is ready: the tasks wait for each other."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(job, name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app.kubernetes.io/name": job.name},
            "ports": [{"name": "tensorflow", "port": job.port}, {"name": "emberflow", "port": job.port + 1}],
        },
    }


def indexed_job_spec(job: Job, role: RoleName, template: Document, *, backoff_limit: int) -> Document:
    """Return the spec of an Indexed Job whose pods are the tasks of a role."""
    replicas = job.roles[role].replicas
    wrong_arguments = {
        "action": "FailJob",
        "onExitCodes": {"operator": "In", "values": [WRONG_INPUT]},
    }
    return {
        "completionMode": "Indexed",
        "completions": replicas,
        "parallelism": replicas,
        "backoffLimit": backoff_limit,
        "podFailurePolicy": {"rules": [wrong_arguments]},
        "template": template,
    }


def _ports(job: Job, role: RoleName) -> list[Document]:
    port = port_of(job, role)
    if role == "tensorboard":
        return [{"name": "http", "containerPort": port}]
    return [{"name": "tensorflow", "containerPort": port}, {"name": "emberflow", "containerPort": port + 1}]


def _literal(text: str) -> str:
    """Return a text in which only our own reference is expanded.

    >>> _literal("$(HOME) $(EMBERFLOW_INDEX)")
    '$$(HOME) $(EMBERFLOW_INDEX)'
    """
    return text.replace("$(", "$$(").replace("$" + INDEX, INDEX)
