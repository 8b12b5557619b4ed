"""Renderings: the golden files, the same bytes twice, TF_CONFIG of every task, patches."""

import doctest
import importlib
import json
import pkgutil
import re
from typing import Any

import pytest
import yaml

from emberflow import deploy
from emberflow.deploy import TARGETS, render
from emberflow.deploy.rendering import objects_of
from emberflow.errors import ConfigError
from tests.unit.deploy.renderings import DESCRIPTIONS, PAIRS, golden_file, job, objects

REFERENCE = re.compile(r"(?<!\$)\$\((\w+)\)")
TRAINING = {"synchronous": 2, "parameter-servers": 6, "gpu": 3}


@pytest.mark.parametrize(("description", "target"), PAIRS)
def test_a_rendering_is_its_golden_file(description: str, target: str) -> None:
    """After a wanted change: `python -m tests.unit.deploy.renderings`, and read the difference."""
    assert render(job(description), target) == golden_file(description, target).read_text()


@pytest.mark.parametrize(("description", "target"), PAIRS)
def test_a_description_renders_the_same_twice(description: str, target: str) -> None:
    assert render(job(description), target).encode() == render(job(description), target).encode()


def test_every_golden_file_belongs_to_a_rendering() -> None:
    files = {golden_file(*pair) for pair in PAIRS}
    assert set(golden_file(*PAIRS[0]).parent.iterdir()) == files


def pod_tasks(document: dict[str, Any]) -> list[tuple[list[str], dict[str, str]]]:
    """Return command and environment of each pod of an Indexed Job, as the kubelet makes them."""
    replicas = document["spec"]["completions"]
    container = document["spec"]["template"]["spec"]["containers"][0]
    return [(expanded(container, index)) for index in range(replicas)]


def expanded(container: dict[str, Any], index: int) -> tuple[list[str], dict[str, str]]:
    env: dict[str, str] = {}

    def expand(text: str) -> str:
        return REFERENCE.sub(lambda found: env[found[1]], text).replace("$$(", "$(")

    for variable in container["env"]:
        env[variable["name"]] = expand(variable["value"]) if "value" in variable else str(index)
    return [expand(word) for word in container["command"]], env


def tasks_of(description: str, target: str, *changes: str) -> list[tuple[list[str], dict[str, str]]]:
    """Return command and environment of every task of a rendering."""
    documents = objects(description, target, *changes)
    if target == "kubernetes":
        return [task for each in documents if each["kind"] == "Job" for task in pod_tasks(each)]
    if target in ("jobset", "kubeflow-trainjob"):
        spec = documents[0]["spec"] if target == "jobset" else documents[0]["spec"]["template"]["spec"]
        return [task for each in spec["replicatedJobs"] for task in pod_tasks(each["template"])]
    if target == "marathon":
        return [(app["cmd"].split(), app["env"]) for app in documents[0]["apps"]]
    return [
        (
            [word.replace("$$", "$") for word in each["command"]],
            {name: text.replace("$$", "$") for name, text in each["environment"].items()},
        )
        for each in documents[0]["services"].values()
    ]


@pytest.mark.parametrize("description", DESCRIPTIONS)
@pytest.mark.parametrize(
    "target", ["kubernetes", "jobset", "kubeflow-trainjob", "docker-compose", "swarm", "marathon"]
)
def test_every_task_knows_the_cluster_and_its_place(description: str, target: str) -> None:
    tasks = tasks_of(description, target)
    assert len(tasks) == TRAINING[description]
    configs = [json.loads(env["TF_CONFIG"]) for _, env in tasks]
    assert len({json.dumps(each["cluster"]) for each in configs}) == 1
    places = set()
    for config, (_, env) in zip(configs, tasks, strict=True):
        role, index = config["task"]["type"], config["task"]["index"]
        assert type(index) is int
        assert (role, str(index)) == (env["EMBERFLOW_ROLE"], env["EMBERFLOW_INDEX"])
        everyone = json.loads(env["EMBERFLOW_CLUSTER"])
        assert everyone[role][index]
        assert "evaluator" not in config["cluster"]
        if role != "evaluator":
            assert config["cluster"][role][index] == everyone[role][index]
        places.add((role, index))
    assert len(places) == len(tasks)
    addresses = [each for roles in json.loads(tasks[0][1]["EMBERFLOW_CLUSTER"]).values() for each in roles]
    assert len(set(addresses)) == len(tasks)


@pytest.mark.parametrize("target", ["kubernetes", "docker-compose", "swarm"])
def test_placeholders_are_filled_and_other_text_stays(target: str) -> None:
    changes = [
        "args=['--{job_name}={task_index}', '--ps_hosts={ps_hosts}', '$(PRICE) $5 {{task_index}} {x}']",
        "env={TASK: '{name} {job_name} {task_index}'}",
    ]
    tasks = tasks_of("parameter-servers", target, *changes)
    command, env = tasks[4]
    assert command[:3] == ["python", "train.py", "--ps=1"]
    assert command[3].startswith("--ps_hosts=")
    assert command[3].count(":5000") == 2
    assert env["TASK"] == "ads ps 1"
    assert all(command[-1] == "$(PRICE) $5 {task_index} {x}" for command, _ in tasks)


def test_spark_has_no_values_for_the_places_of_tasks() -> None:
    for change in ("args=[train.py, '{task_index}']", "env={A: '{ps_hosts}'}"):
        with pytest.raises(ConfigError, match="has no value") as caught:
            render(job("synchronous", change), "spark-submit")
        assert "ctx.role" in caught.value.fix


def test_names_of_pods_are_those_that_their_jobs_give_them() -> None:
    documents = objects("synchronous", "kubernetes")
    cluster = json.loads(tasks_of("synchronous", "kubernetes")[0][1]["EMBERFLOW_CLUSTER"])
    name = documents[1]["metadata"]["name"]
    subdomain = documents[1]["spec"]["template"]["spec"]["subdomain"]
    assert subdomain == documents[0]["metadata"]["name"]
    assert cluster["worker"] == [f"{name}-{index}.{subdomain}:2222" for index in range(2)]


def test_no_rendering_needs_or_holds_a_key_itself() -> None:
    for target in TARGETS:
        if target.startswith("spark-"):
            render(job("synchronous", "key_secret=null"), target)
            continue
        with pytest.raises(ConfigError, match="key_secret") as caught:
            render(job("synchronous", "key_secret=null"), target)
        assert "openssl rand" in caught.value.fix


def test_roles_beyond_training_run_a_node_by_themselves() -> None:
    changes = [
        "roles.dispatcher={}",
        "roles.data-worker={replicas: 2}",
        "roles.tensorboard={}",
        "log_dir=/logs",
    ]
    document = objects_of(job("synchronous", *changes), "docker-compose")[0]
    services = document["services"]
    assert services["data-worker-1"]["command"] == ["python", "-m", "emberflow.node"]
    assert services["tensorboard-0"]["command"] == ["python", "-m", "emberflow.node", "--log-dir", "/logs"]
    assert services["tensorboard-0"]["profiles"] == ["tensorboard"]
    assert "TF_CONFIG" not in services["dispatcher-0"]["environment"]
    with pytest.raises(ConfigError, match="no role dispatcher"):
        render(job("synchronous", *changes), "kubeflow-tfjob")
    with pytest.raises(ConfigError, match="no task for the role dispatcher"):
        render(job("synchronous", *changes), "spark-submit")


def test_a_patch_changes_the_objects_that_it_means() -> None:
    patch = {
        "kind": "Job",
        "metadata": {"name": "mnist-worker"},
        "spec": {
            "backoffLimit": None,
            "template": {
                "spec": {
                    "nodeSelector": {"disk": "ssd"},
                    "containers": [{"name": "tensorflow", "imagePullPolicy": "Always"}],
                }
            },
        },
    }
    service, worker = yaml.safe_load_all(render(job("synchronous"), "kubernetes", patches=[patch]))
    assert "nodeSelector" not in service["spec"]
    assert "backoffLimit" not in worker["spec"]
    pod = worker["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["containers"][0]["image"] == "registry.example.com/mnist:1"


def test_a_patch_that_means_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="No rendered object") as caught:
        render(job("synchronous"), "kubernetes", patches=[{"kind": "Pod"}])
    assert "Job mnist-worker" in caught.value.fix
    with pytest.raises(ConfigError, match="no objects to patch"):
        render(job("synchronous"), "spark-submit", patches=[{"a": 1}])


def test_the_examples_in_the_code_are_true() -> None:
    for module in pkgutil.iter_modules(deploy.__path__, "emberflow.deploy."):
        assert doctest.testmod(importlib.import_module(module.name)).failed == 0, module.name


def test_a_misspelt_target_is_answered_with_the_right_one() -> None:
    with pytest.raises(ConfigError, match="target='kubernets'") as caught:
        render(job("synchronous"), "kubernets")
    assert caught.value.fix == "Did you mean kubernetes?"


def test_one_master_in_the_description_is_the_only_command() -> None:
    text = render(job("synchronous", "spark_conf.spark.master=yarn"), "spark-submit")
    assert text.count("spark-submit") == 1
    assert "--master yarn" in text
