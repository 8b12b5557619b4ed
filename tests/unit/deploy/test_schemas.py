"""Every rendering is what its cluster manager accepts, and a wrong one is not."""

import copy
from typing import Any

import pytest

from tests.unit.deploy.renderings import PAIRS, objects
from tests.unit.deploy.schemas import INVALID, validate

OBJECTS = [pair for pair in PAIRS if pair[1] != "spark-submit"]  # tests/spark has Spark's own parser

# The path of a field of the last object, and what it must not be.
WRONG: dict[str, list[tuple[list[Any], Any]]] = {
    "kubernetes": [
        (["spec", "completions"], "two"),
        (["spec", "template", "spec", "containers", 0, "comand"], ["python"]),
        (["apiVersion"], "batch/v1beta1"),
    ],
    "jobset": [
        (["spec", "replicatedJobs", 0, "replicas"], "one"),
        (["spec", "successPolicy", "operator"], "Some"),
        (["apiVersion"], "jobset.x-k8s.io/v1alpha1"),
    ],
    "kubeflow-tfjob": [
        (["spec", "tfReplicaSpecs", "Worker", "replicas"], "two"),
        (["spec", "tfReplicaSpecs", "Worker", "template", "spec", "containers", 0, "ports", 0, "port"], 1),
        (["apiVersion"], "kubeflow.org/v1beta2"),
    ],
    "kubeflow-trainjob": [
        (["spec", "trainer", "numNodes"], "two"),
        (["spec", "runtimeRef", "nam"], "x"),
        (["apiVersion"], "trainer.kubeflow.org/v2alpha1"),
    ],
    "spark-operator": [
        (["spec", "type"], "Perl"),
        (["spec", "executor", "core"], 1),
        (["spec", "executor", "instances"], "two"),
    ],
    "docker-compose": [
        (["services", "worker-0", "comand"], ["python"]),
        (["services", "worker-0", "deploy", "resources", "limits", "cpus"], ["2"]),
        (["networks", "cluster", "driver"], 3),
    ],
    "swarm": [
        (["services", "worker-0", "profiles"], ["tensorboard"]),
        (["services", "worker-0", "deploy", "restart_policy", "condition"], "sometimes"),
        (["version"], "2"),
    ],
    "marathon": [
        (["apps", 0, "mem"], "4Gi"),
        (["apps", 0, "networks", 0, "mode"], "bridge"),
        (["apps", 0, "comand"], "python"),
    ],
    "tf-data-service": [
        (["spec", "serviceName"], 1),
        (["spec", "template", "spec", "containers", 0, "imag"], "x"),
        (["apiVersion"], "extensions/v1beta1"),
    ],
}


@pytest.mark.parametrize(("description", "target"), OBJECTS)
def test_a_rendering_is_valid(description: str, target: str) -> None:
    validate(target, objects(description, target))


@pytest.mark.parametrize(
    ("target", "path", "value"), [(target, *wrong) for target, wrongs in WRONG.items() for wrong in wrongs]
)
def test_an_invalid_change_is_rejected(target: str, path: list[Any], value: Any) -> None:
    documents = copy.deepcopy(objects("gpu", target))
    validate(target, documents)
    part: Any = documents[-1]
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    with pytest.raises(INVALID):
        validate(target, documents)
