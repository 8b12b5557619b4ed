"""Kubeflow's TFJob, where the training operator of version 1 is installed: it sets TF_CONFIG itself."""

from emberflow.deploy.documents import Document, without_none
from emberflow.deploy.job import NODE_COMMAND, Job, RoleName
from emberflow.deploy.pods import KEY_FOLDER, metadata_of, template_of, variables_of
from emberflow.deploy.tasks import RUNS_PROGRAM, cluster_of, roles_of, task_of
from emberflow.errors import ConfigError

REPLICA_TYPES: dict[RoleName, str] = {
    "chief": "Chief",
    "worker": "Worker",
    "ps": "PS",
    "evaluator": "Evaluator",
}
INDEX_LABEL = "metadata.labels['training.kubeflow.org/replica-index']"


def render(job: Job) -> list[Document]:
    """Return the object."""
    unknown = [role for role in roles_of(job) if role not in RUNS_PROGRAM]
    if unknown:
        raise ConfigError(
            f"A TFJob has no role {unknown[0]}. Received: roles={sorted(job.roles)}.",
            fix=f"Leave {unknown[0]} out, or render the target jobset, which has all roles.",
        )
    replicas = {
        REPLICA_TYPES[role]: {
            "replicas": job.roles[role].replicas,
            "restartPolicy": "OnFailure" if job.restarts else "Never",
            "template": _template(job, role),
        }
        for role in roles_of(job)
    }
    policy = {
        "backoffLimit": job.restarts,
        # Nodes end by themselves, an evaluator last; parameter servers of other programs would stay.
        "cleanPodPolicy": "None" if job.command == NODE_COMMAND else "Running",
        "ttlSecondsAfterFinished": job.time_to_live,
    }
    return [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": metadata_of(job, job.name),
            "spec": without_none(
                {
                    "runPolicy": without_none(policy),
                    "successPolicy": None if "chief" in job.roles else "AllWorkers",  # not only worker 0
                    "tfReplicaSpecs": replicas,
                }
            ),
        }
    ]


def _template(job: Job, role: RoleName) -> Document:
    cluster = cluster_of(job, lambda each, index: f"{job.name}-{each}-{index}.{job.namespace}.svc:{job.port}")
    index = "$(EMBERFLOW_INDEX)"
    task = task_of(job, role, index, cluster, f"{KEY_FOLDER}/key" if job.key_secret else None)
    own = [each for each in variables_of(task) if each["name"] != "TF_CONFIG"]  # the operator's holds
    field: Document = {"name": "EMBERFLOW_INDEX", "valueFrom": {"fieldRef": {"fieldPath": INDEX_LABEL}}}
    template = template_of(job, task, [field, *own])
    container = template["spec"]["containers"][0]
    container["ports"][0]["name"] = "tfjob-port"  # the operator looks for the port by this name
    del template["spec"]["restartPolicy"]  # that of the replicas holds
    return template
