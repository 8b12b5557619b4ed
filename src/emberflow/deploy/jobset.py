"""JobSet: all roles in one object that starts again as a whole, and is done when the training is."""

from collections.abc import Mapping

from emberflow.deploy.documents import Document, without_none
from emberflow.deploy.job import Job, RoleName
from emberflow.deploy.pods import indexed_job_spec, metadata_of, pod_template
from emberflow.deploy.tasks import Cluster, cluster_of, port_of, roles_of


def render(job: Job) -> list[Document]:
    """Return the object."""
    cluster = jobset_cluster(job)
    templates = {role: pod_template(job, role, cluster) for role in roles_of(job)}
    return [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": metadata_of(job, job.name),
            "spec": jobset_spec(job, templates),
        }
    ]


def jobset_cluster(job: Job) -> Cluster:
    """Return the addresses of all tasks, which are pods of the first and only Job of their role."""
    return cluster_of(job, lambda role, index: f"{job.name}-{role}-0-{index}.{job.name}:{port_of(job, role)}")


def jobset_spec(job: Job, templates: Mapping[RoleName, Document]) -> Document:
    """Return the spec of a JobSet: one replicated Job for each role, by the template of its pods."""
    # What ends by itself also where a program of your own runs; an evaluator may have a last checkpoint to evaluate.
    ends: tuple[RoleName, ...] = ("chief", "worker", "evaluator")
    done = [role for role in roles_of(job) if role in ends] or ["dispatcher"]
    spec = {
        "network": {
            "enableDNSHostnames": True,
            "publishNotReadyAddresses": True,
            "subdomain": job.name,
        },
        "successPolicy": {"operator": "All", "targetReplicatedJobs": done},
        "failurePolicy": {
            "maxRestarts": job.restarts,
            "rules": [
                {
                    "name": "wrong-arguments",
                    "action": "FailJobSet",
                    "onJobFailureReasons": ["PodFailurePolicy"],
                }
            ],
        },
        "ttlSecondsAfterFinished": job.time_to_live,
        "replicatedJobs": [
            {
                "name": role,
                "replicas": 1,
                # A failed pod fails its Job, and with it the JobSet, which starts all tasks again together.
                "template": {"spec": indexed_job_spec(job, role, templates[role], backoff_limit=0)},
            }
            for role in roles_of(job)
        ],
    }
    return without_none(spec)
