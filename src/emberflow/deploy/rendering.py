"""The targets, and the rendering of a job for one of them."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from emberflow._names import closest
from emberflow.deploy.documents import Document, json_text, yaml_text
from emberflow.deploy.fields import wrong
from emberflow.deploy.job import Job
from emberflow.deploy.patches import patched
from emberflow.deploy.spark_submit import shell_text
from emberflow.errors import ConfigError


@dataclass(frozen=True)
class Target:
    """A cluster manager: the module that makes its objects, and the form of its files."""

    module: str
    form: Literal["yaml", "json", "sh"] = "yaml"


TARGETS = {
    "kubernetes": Target("kubernetes"),
    "jobset": Target("jobset"),
    "kubeflow-tfjob": Target("tfjob"),
    "kubeflow-trainjob": Target("trainjob"),
    "spark-operator": Target("spark_operator"),
    "spark-submit": Target("spark_submit", "sh"),
    "docker-compose": Target("compose"),
    "swarm": Target("swarm"),
    "marathon": Target("marathon", "json"),
    "tf-data-service": Target("data_service"),
}
_FORMS: dict[str, Callable[[Sequence[Document]], str]] = {
    "yaml": yaml_text,
    "json": json_text,
    "sh": shell_text,
}


def render(job: Job, target: str, *, patches: Sequence[Any] = ()) -> str:
    """Return what a cluster manager takes, as text: the same bytes for the same description.

    Args:
        job: The description.
        target: One of kubernetes, jobset, kubeflow-tfjob, kubeflow-trainjob, spark-operator, spark-submit,
            docker-compose, swarm, marathon, tf-data-service.
        patches: Changes to the rendered objects, each a dict of the fields to change.
    """
    form = _target(target).form
    if patches and form == "sh":
        raise ConfigError(
            f"A command line has no objects to patch. Received: target={target!r}.",
            fix="Set Spark's settings in the description: `spark_conf: {spark.name: value}`.",
        )
    return _FORMS[form](patched(objects_of(job, target), patches))


def objects_of(job: Job, target: str) -> list[Document]:
    """Return the objects of a rendering."""
    module = importlib.import_module(f"emberflow.deploy.{_target(target).module}")
    objects: list[Document] = module.render(job)
    return objects


def file_name(job: Job, target: str) -> str:
    """Return the name of the rendering's file.

    >>> file_name(Job(name="mnist", image="b"), "kubernetes")
    'mnist-kubernetes.yaml'
    """
    return f"{job.name}-{target}.{_target(target).form}"


def _target(name: str) -> Target:
    if name in TARGETS:
        return TARGETS[name]
    meant = closest(name, TARGETS)
    fix = f"Did you mean {meant}?" if meant else f"Choose one of: {', '.join(TARGETS)}."
    raise wrong("target", "a cluster manager that is known", name, fix)
