"""What each cluster manager accepts: real schemas where there are any, else typed models of documented fields."""

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from emberflow.deploy.fields import build
from tests.unit.deploy.models import MarathonGroup, SwarmStack

KUBERNETES = ("1.30", kubernetes_validate.latest_version())
CUSTOM = {  # apiVersion and kind -> file; no other version is rendered
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobset",
    ("kubeflow.org/v1", "TFJob"): "kubeflow-tfjob",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "kubeflow-trainjob",
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"): "spark-operator",
}
BUILT_IN = {("v1", "Service"), ("batch/v1", "Job"), ("apps/v1", "StatefulSet")}
RUNTIME = ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime")
INVALID = (jsonschema.ValidationError, kubernetes_validate.ValidationError, ValueError)


def validate(target: str, documents: list[dict[str, Any]]) -> None:
    """Raise one of INVALID if the cluster manager would not accept the documents."""
    for document in documents:
        if target == "docker-compose":
            jsonschema.Draft7Validator(schema("docker-compose")).validate(document)
        elif target == "swarm":
            build(SwarmStack, document)
        elif target == "marathon":
            build(MarathonGroup, document)
        else:
            _validate_object(document)


def _validate_object(document: dict[str, Any]) -> None:
    kind = document["apiVersion"], document["kind"]
    if kind in BUILT_IN:
        for version in KUBERNETES:
            kubernetes_validate.validate(document, version, strict=True)
    elif kind == RUNTIME:  # its definition is not at hand; what it runs is a JobSet
        assert set(document["spec"]) == {"mlPolicy", "template"}
        assert set(document["spec"]["mlPolicy"]) == {"numNodes"}
        jobset = custom_schema("jobset", "v1alpha2")["properties"]["spec"]
        jsonschema.Draft7Validator(jobset).validate(document["spec"]["template"]["spec"])
    elif kind in CUSTOM:
        jsonschema.Draft7Validator(custom_schema(CUSTOM[kind], kind[0].split("/")[1])).validate(document)
    else:
        raise ValueError(f"an API that is not known: {kind}")


@cache
def schema(name: str) -> dict[str, Any]:
    """Return a schema from EMBERFLOW_SCHEMAS or beside the repository; skip the test without it."""
    beside = Path(__file__).parents[3].parent / "shared" / "data" / "schemas"
    file = Path(os.environ.get("EMBERFLOW_SCHEMAS", beside)) / f"{name}.json.gz"
    if not file.exists():
        pytest.skip(f"no {file.name} in {file.parent}; set EMBERFLOW_SCHEMAS to the folder of the schemas")
    found: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return found


@cache
def custom_schema(name: str, version: str) -> Any:
    """Return the schema of a resource definition, which refuses fields that it does not know."""
    return closed(schema(name)["versions"][version])


def closed(part: Any) -> Any:
    """Return a schema in which objects have no other fields than those that are described.

    Kubernetes drops unknown fields silently, or refuses them with `kubectl --validate=strict`.
    """
    if isinstance(part, list):
        return [closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    result = {name: closed(each) for name, each in part.items()}
    if "properties" in part and not part.get("x-kubernetes-preserve-unknown-fields"):
        result.setdefault("additionalProperties", False)
    return result
