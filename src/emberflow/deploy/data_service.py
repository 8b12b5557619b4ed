"""tf.data service by itself, for jobs that come and go: a dispatcher and data workers with names that stay."""

import dataclasses

from emberflow._plan import deadlines
from emberflow.deploy.documents import Document
from emberflow.deploy.job import Job, Role, RoleName
from emberflow.deploy.pods import (
    KEY_FOLDER,
    headless_service,
    labels_of,
    metadata_of,
    template_of,
    variables_of,
)
from emberflow.deploy.tasks import Cluster, cluster_of, roles_of, task_of

# Available since Kubernetes 1.28; before, no pod of a StatefulSet could learn its number without a shell.
INDEX_LABEL = "metadata.labels['apps.kubernetes.io/pod-index']"


def render(job: Job) -> list[Document]:
    """Return a headless Service and two StatefulSets.

    A description without these roles gets one dispatcher, and as many data workers as it has nodes that train.
    """
    service = service_of(job)
    cluster = cluster_of(
        service, lambda role, index: f"{service.name}-{role}-{index}.{service.name}:{job.port}"
    )
    return [
        headless_service(service, service.name),
        *(_stateful_set(service, role, cluster) for role in roles_of(service)),
    ]


def service_of(job: Job) -> Job:
    """Return the description with the roles of tf.data service only."""
    trains = sum(job.roles[role].replicas for role in job.roles if role in ("chief", "worker"))
    roles: dict[RoleName, Role] = {
        "dispatcher": job.roles.get("dispatcher", Role()),
        "data-worker": job.roles.get("data-worker", Role(replicas=max(trains, 1))),
    }
    return dataclasses.replace(
        job, name=f"{job.name}-data", roles=roles
    )  # a name of its own beside the job's


def _stateful_set(job: Job, role: RoleName, cluster: Cluster) -> Document:
    name = f"{job.name}-{role}"
    task = task_of(job, role, "$(EMBERFLOW_INDEX)", cluster, f"{KEY_FOLDER}/key" if job.key_secret else None)
    index: Document = {"name": "EMBERFLOW_INDEX", "valueFrom": {"fieldRef": {"fieldPath": INDEX_LABEL}}}
    template = template_of(job, task, [index, *variables_of(task)])
    template["spec"]["restartPolicy"] = "Always"
    template["spec"]["containers"][0]["readinessProbe"] = {
        "tcpSocket": {"port": "tensorflow"},
        "periodSeconds": deadlines.RENDERED_PROBE_INTERVAL,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata_of(job, name, role),
        "spec": {
            "serviceName": job.name,
            "replicas": job.roles[role].replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels_of(job, role)},
            "template": template,
        },
    }
