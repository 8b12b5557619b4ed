"""Kubeflow Trainer: a TrainingRuntime that describes the tasks, and a TrainJob that runs it."""

from emberflow.deploy.documents import Document, without_none
from emberflow.deploy.job import Job
from emberflow.deploy.jobset import jobset_cluster, jobset_spec
from emberflow.deploy.pods import metadata_of, pod_template
from emberflow.deploy.tasks import roles_of

API = "trainer.kubeflow.org/v1alpha1"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
CONTAINER = "node"  # the trainer looks for its container by this name


def render(job: Job) -> list[Document]:
    """Return the runtime and the job."""
    trainer = "worker" if "worker" in job.roles else roles_of(job)[0]
    cluster = jobset_cluster(job)
    templates = {role: pod_template(job, role, cluster, container=CONTAINER) for role in roles_of(job)}
    spec = jobset_spec(job, templates)
    spec.pop("ttlSecondsAfterFinished", None)  # a TrainJob would miss its JobSet
    for replicated in spec["replicatedJobs"]:
        if replicated["name"] == trainer:
            replicated["template"] = {"metadata": {"labels": {STEP: "trainer"}}, **replicated["template"]}
    nodes = job.roles[trainer].replicas
    return [
        {
            "apiVersion": API,
            "kind": "TrainingRuntime",
            "metadata": metadata_of(job, job.name),
            "spec": {"mlPolicy": {"numNodes": nodes}, "template": {"spec": spec}},
        },
        {
            "apiVersion": API,
            "kind": "TrainJob",
            "metadata": metadata_of(job, job.name),
            "spec": without_none(
                {
                    "runtimeRef": {
                        "apiGroup": "trainer.kubeflow.org",
                        "kind": "TrainingRuntime",
                        "name": job.name,
                    },
                    "trainer": {"numNodes": nodes},
                }
            ),
        },
    ]
