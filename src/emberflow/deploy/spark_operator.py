"""Kubeflow's Spark operator: a SparkApplication."""

from emberflow._plan import deadlines
from emberflow.deploy.documents import Document, without_none
from emberflow.deploy.job import Job
from emberflow.deploy.pods import metadata_of, mounts_of, volumes_of
from emberflow.deploy.spark_settings import (
    JVM_MEMORY,
    SPARK_VERSION,
    application_of,
    executor_environment,
    executor_settings,
    image_url,
    node_count,
)

API = "sparkoperator.k8s.io/v1beta2"
# What has a field of its own in the object.
OWN_FIELDS = (
    "spark.executor.instances",
    "spark.executor.cores",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
)


def render(job: Job) -> list[Document]:
    """Return the object."""
    application = application_of(job)
    settings = executor_settings(job, kubernetes=True)
    own = {name.removeprefix("spark.executor."): settings.pop(name) for name in OWN_FIELDS}
    pod = _pod(job)
    spec = {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "sparkVersion": SPARK_VERSION,
        "image": job.image,
        "mainApplicationFile": image_url(job, application.file),
        "arguments": list(application.args) or None,
        "sparkConf": settings | dict(job.spark_conf),
        "restartPolicy": _restart_policy(job),
        "timeToLiveSeconds": job.time_to_live,
        "volumes": _volumes(job) or None,
        "driver": without_none(
            {"cores": 1, "memory": JVM_MEMORY, "serviceAccount": job.service_account, **pod}
        ),
        "executor": {
            "instances": node_count(job),
            "cores": int(own["cores"]),
            "memory": own["memory"],
            "memoryOverhead": own["memoryOverhead"],
            **pod,
        },
    }
    return [
        {
            "apiVersion": API,
            "kind": "SparkApplication",
            "metadata": metadata_of(job, job.name),
            "spec": without_none(spec),
        }
    ]


def _volumes(job: Job) -> list[Document]:
    return [each for each in volumes_of(job) if each["name"] != "emberflow-key"]  # Spark has a key of its own


def _pod(job: Job) -> Document:
    env = [{"name": name, "value": value} for name, value in executor_environment(job).items()]
    mounts = [each for each in mounts_of(job) if each["name"] != "emberflow-key"]
    return without_none({"env": env or None, "volumeMounts": mounts or None})


def _restart_policy(job: Job) -> Document:
    if not job.restarts:
        return {"type": "Never"}
    return {
        "type": "OnFailure",
        "onFailureRetries": job.restarts,
        "onFailureRetryInterval": deadlines.RENDERED_RETRY_PAUSE,
        "onSubmissionFailureRetries": job.restarts,
        "onSubmissionFailureRetryInterval": deadlines.RENDERED_RETRY_PAUSE,
    }
