"""Descriptions: what is wrong is said with the field's path and a remedy."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from emberflow.cli.main import app
from emberflow.deploy import TARGETS, Job, Role, load
from emberflow.deploy.loading import job_of
from emberflow.errors import ConfigError, UnknownNameError
from tests.unit.deploy.renderings import HERE

PLAIN = {"name": "mnist", "image": "mnist:1"}
VOLUME = {"name": "data", "mount": "/data", "claim": "c"}

# What is changed, the beginning of the problem, and a part of the remedy.
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"imag": "x"}, "There is no field `imag`", "Did you mean image?"),
    ({"roles": {"workers": {}}}, "`roles.workers` must be one of", "Did you mean worker?"),
    ({"roles": {"worker": {"replica": 2}}}, "There is no field `roles.worker.replica`", "replicas"),
    ({"roles": {"worker": {"replicas": "2"}}}, "`roles.worker.replicas` must be a whole number", "quotes"),
    ({"roles": {"worker": {"replicas": 0}}}, "`roles.worker.replicas` must be 1 or more", "leave worker out"),
    ({"roles": {}}, "`roles` must be a description with a chief or workers", "worker"),
    ({"roles": {"chief": {"replicas": 2}}}, "`roles.chief.replicas` must be 1", "roles.worker"),
    ({"roles": {"ps": {}, "worker": {}}}, "Role ps needs a chief", "chief"),
    ({"roles": {"worker": {}, "dispatcher": {}}}, "Role dispatcher needs a data-worker", "data-worker"),
    ({"roles": {"worker": {}, "tensorboard": {}}}, "`log_dir` must be", "log_dir: "),
    ({"roles": {"worker": {"memory": "4 GB"}}}, "`roles.worker.memory` must be", "4Gi"),
    ({"roles": {"worker": {"cpu": 0}}}, "`roles.worker.cpu` must be more than 0", "0.5"),
    ({"roles": {"worker": {"gpu": -1}}}, "`roles.worker.gpu` must be 0 or more", "Leave it out"),
    ({"roles": {"worker": 2}}, "`roles.worker` must be fields with values", "name: value"),
    ({"name": "My_Job"}, "`name` must be a DNS name", "my-job"),
    ({"name": "a" * 60}, "`name` must be at most", "Shorten it by"),
    ({"namespace": "a.b"}, "`namespace` must be a DNS name", "a-b"),
    ({"image": ""}, "`image` must be the name of an image", "TAG"),
    ({"args": "train.py:train"}, "`args` must be a list", "[train.py:train]"),
    ({"args": ["--epochs", 3]}, "`args[1]` must be text", '"3"'),
    ({"args": ["{task_indx}"]}, "`args[0]` has an unknown placeholder {task_indx}", "{task_index}"),
    ({"command": []}, "`command` must be at least one word", "emberflow.node"),
    ({"working_dir": "app"}, "`working_dir` must be an absolute path", "/app"),
    ({"port": 70000}, "`port` must be a port", "2222"),
    ({"port": True}, "`port` must be a whole number", "without quotes"),
    ({"env": {"A-B": "1"}}, "`env.A-B` must be named", "A_B"),
    ({"env": {"TF_CONFIG": "{}"}}, "`env.TF_CONFIG` is set by the rendering", "Leave it out"),
    ({"env": {"EPOCHS": 3}}, "`env.EPOCHS` must be text", '"3"'),
    ({"volumes": [VOLUME, VOLUME | {"name": "more"}]}, "`volumes[1].mount` must be a folder", "volumes[0]"),
    ({"volumes": [VOLUME, VOLUME | {"mount": "/b"}]}, "`volumes[1].name`", "differently"),
    ({"volumes": [{"name": "data", "mount": "/data"}]}, "`volumes[0]` must be a claim", "temporary: true"),
    ({"volumes": [VOLUME | {"mount": "data"}]}, "`volumes[0].mount` must be an absolute path", "/data"),
    ({"volumes": [VOLUME | {"mount": "/run/secrets"}]}, "`volumes[0].mount` must be a folder", "run's key"),
    ({"secrets": [{"name": "gcs"}]}, "`secrets[0].mount` must be a folder", "mount: "),
    ({"secrets": [{"mount": "/a"}]}, "`secrets[0]` must be the name of a secret", "name: "),
    ({"key_secret": {}}, "`key_secret` must be the name of a secret", "file: "),
    ({"key_secret": {"name": "Key"}}, "`key_secret.name` must be a DNS name", "key"),
    ({"restart_policy": "always"}, "`restart_policy` must be one of on-failure, never", "on-failure"),
    ({"max_restarts": -1}, "`max_restarts` must be 0 or more", "0"),
    ({"time_to_live": -1}, "`time_to_live` must be 0 or more", "Leave it out"),
]


@pytest.mark.parametrize(("change", "problem", "fix"), WRONG)
def test_a_wrong_description_is_refused(change: dict[str, Any], problem: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        job_of(PLAIN | change)
    assert caught.value.problem.startswith(problem)
    assert fix in caught.value.fix


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ConfigError, match="`image` is missing"):
        job_of({"name": "a"})


def test_a_job_in_python_is_checked_like_one_in_yaml() -> None:
    job = Job(name="a", image="b", args=["train.py:train"], roles={"worker": Role(replicas=2)})  # type: ignore[arg-type]
    assert job.args == ("train.py:train",)
    assert job == job_of(
        {"name": "a", "image": "b", "args": ["train.py:train"], "roles": {"worker": {"replicas": 2}}}
    )
    with pytest.raises(ConfigError, match=r"`roles.worker.replicas` must be 1 or more"):
        Job(name="a", image="b", roles={"worker": Role(replicas=0)})
    with pytest.raises(ConfigError, match=r"Received: port='2222'"):
        Job(name="a", image="b", port="2222")  # type: ignore[arg-type]


def test_changes_of_single_fields() -> None:
    path = HERE / "descriptions" / "gpu.yaml"
    changes = [
        "roles.worker.replicas=8",
        "env.A.B=1",
        "roles.chief=null",
        'env={X: "2"}',
        "key_secret=./run.key",
    ]
    job = load(path, changes)
    assert job.roles["worker"] == Role(replicas=8, cpu=8, memory="32Gi", gpu=2)
    assert "chief" not in job.roles
    assert job.env == {"X": "2"}
    assert job.key_secret is not None
    assert job.key_secret.file == "./run.key"


def test_a_change_of_a_field_that_does_not_exist() -> None:
    with pytest.raises(UnknownNameError, match=r"no field `roles\.worker\.replcas`"):
        load(HERE / "descriptions" / "gpu.yaml", ["roles.worker.replcas=8"])
    with pytest.raises(ConfigError, match="A change is a field and its value"):
        load(HERE / "descriptions" / "gpu.yaml", ["roles"])


def test_files_that_are_no_description(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        load(tmp_path / "job.yaml")
    assert "--example" in caught.value.fix
    (tmp_path / "job.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match="is not YAML"):
        load(tmp_path / "job.yaml")
    (tmp_path / "job.yaml").write_text("a: 1\n---\nb: 2\n")
    with pytest.raises(ConfigError, match="one YAML document"):
        load(tmp_path / "job.yaml")


@pytest.mark.parametrize("target", TARGETS)
def test_the_example_renders_for_every_target(target: str, tmp_path: Path) -> None:
    run = CliRunner()
    example = run.invoke(app, ["render", "--example"])
    assert example.exit_code == 0
    (tmp_path / "job.yaml").write_text(example.output)
    printed = run.invoke(app, ["render", target, str(tmp_path / "job.yaml")])
    assert printed.exit_code == 0, printed.output
    written = run.invoke(app, ["render", target, str(tmp_path / "job.yaml"), "--out", str(tmp_path / "out")])
    assert written.exit_code == 0, written.output
    (file,) = (tmp_path / "out").iterdir()
    assert file.stem == f"mnist-{target}"
    assert file.read_text() == printed.output


def test_the_example_shows_every_field() -> None:
    text = CliRunner().invoke(app, ["render", "--example"]).output
    for name in Job.__dataclass_fields__:
        assert f"{name}:" in text


def test_the_command_line_refuses_what_is_missing_or_wrong(tmp_path: Path) -> None:
    run = CliRunner()
    assert run.invoke(app, ["render"]).exit_code == 2
    (tmp_path / "job.yaml").write_text("name: a\n")
    refused = run.invoke(app, ["render", "kubernetes", str(tmp_path / "job.yaml")])
    assert refused.exit_code == 2
    assert "`image` is missing" in refused.output


def test_a_patch_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "patch.yaml").write_text("kind: Service\nmetadata: {annotations: {team: ads}}\n")
    arguments = ["render", "kubernetes", str(HERE / "descriptions" / "gpu.yaml")]
    done = CliRunner().invoke(app, [*arguments, "--patch", str(tmp_path / "patch.yaml")])
    assert done.exit_code == 0, done.output
    assert "team: ads" in done.output
