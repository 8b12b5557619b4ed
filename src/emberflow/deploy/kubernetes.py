"""Plain Kubernetes: a headless Service, and an Indexed Job for each role."""

from emberflow.deploy.documents import Document, without_none
from emberflow.deploy.job import Job
from emberflow.deploy.pods import headless_service, indexed_job_spec, metadata_of, pod_template
from emberflow.deploy.tasks import cluster_of, port_of, roles_of


def render(job: Job) -> list[Document]:
    """Return the objects.

    A Job of Kubernetes ends by itself only: parameter servers, dispatcher and data workers end when the chief
    says that it is done.
    """
    cluster = cluster_of(
        job, lambda role, index: f"{job.name}-{role}-{index}.{job.name}:{port_of(job, role)}"
    )
    documents = [headless_service(job, job.name)]
    for role in roles_of(job):
        template = pod_template(job, role, cluster, subdomain=job.name)
        limit = (
            job.restarts * job.roles[role].replicas
        )  # when one task fails, its peers fail and start again too
        spec = indexed_job_spec(job, role, template, backoff_limit=limit)
        documents.append(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": metadata_of(job, f"{job.name}-{role}", role),
                "spec": without_none({"ttlSecondsAfterFinished": job.time_to_live, **spec}),
            }
        )
    return documents
