"""What a task without Spark reads before it begins: variables, the key, the command line, the program, data."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import emberflow as ef
from emberflow._managed.data_options import sources_of
from emberflow._managed.options import read_command
from emberflow._managed.place import Place, read_place
from emberflow._managed.run_key import read_key
from emberflow._managed.verdict import Verdict, verdict_of
from emberflow._node.program_file import ProgramFile

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"], "evaluator": ["e:1"]}


def emberflow(role: str, index: object = 0, cluster: Any = CLUSTER, **more: str) -> dict[str, str]:
    named = {"EMBERFLOW_ROLE": role, "EMBERFLOW_CLUSTER": json.dumps(cluster)}
    return named | ({} if index is None else {"EMBERFLOW_INDEX": str(index)}) | more


def tf_config(role: str, index: object = 0, cluster: Any = CLUSTER) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})}


def test_ranks_follow_the_order_of_roles() -> None:
    place = read_place(emberflow("worker", 1))
    assert (place.rank, place.address, place.chief_address) == (2, ("c", 1), ("a", 2))
    assert [node.name for node in place.nodes] == ["chief 0", "worker 1", "worker 2", "ps 3", "evaluator 4"]


def test_tf_config_says_the_same() -> None:
    assert read_place(tf_config("worker", 1)) == read_place(emberflow("worker", 1))


def test_an_indexed_job_gives_the_index() -> None:
    assert read_place(emberflow("worker", None, JOB_COMPLETION_INDEX="1")).rank == 2


def test_the_first_worker_is_the_chief_where_there_is_none() -> None:
    place = read_place(emberflow("worker", 1, {"worker": ["a:5", "b:5"], "dispatcher": ["c:5"]}))
    assert [(node.role, node.index) for node in place.nodes] == [
        ("chief", 0),
        ("worker", 0),
        ("dispatcher", 0),
    ]
    assert (place.rank, place.chief_address) == (1, ("a", 6))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "neither is set"),
        ({"TF_CONFIG": "{"}, "must be an object in JSON"),
        ({"TF_CONFIG": json.dumps({"cluster": CLUSTER})}, "must name its task"),
        (tf_config("worker", "one"), "whole number"),
        (tf_config("worker", 2), "index=2"),
        (emberflow("boss"), "EMBERFLOW_ROLE must be one of"),
        (emberflow("worker", None), "JOB_COMPLETION_INDEX"),
        (emberflow("worker", 0, {"worker": ["a"]}), "HOST:PORT"),
        (emberflow("worker", 0, {"worker": [7]}), "HOST:PORT"),
        (emberflow("worker", 0, {"worker": ["a:1", "a:1"]}), "different addresses"),
        (emberflow("worker", 0, {"worker": ["a:1"], "helper": ["b:1"]}), "helper"),
        (emberflow("worker", 0, []), "JSON"),
    ],
)
def test_wrong_variables_are_refused(environment: dict[str, str], expected: str) -> None:
    with pytest.raises(ef.ConfigError, match=expected) as raised:
        read_place(environment)
    assert raised.value.fix


def test_an_evaluator_of_tf_config_is_told_what_it_needs() -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1"]}
    with pytest.raises(ef.ConfigError) as raised:
        read_place(tf_config("evaluator", 0, cluster))
    assert "EMBERFLOW_CLUSTER" in raised.value.fix


def test_the_key_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = key_file(tmp_path, "a" * 64 + "\n")
    assert read_key({"EMBERFLOW_KEY_FILE": str(file)}) == b"a" * 64


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        ("", 0o600, "Received: 0"),
        ("secretsecret", 0o600, "Received: 12"),
        ("s" * 64, 0o644, "mode 644"),
        ("s" * 64, 0o602, "mode 602"),
    ],
)
def test_a_key_that_protects_nothing_is_refused(tmp_path: Path, text: str, mode: int, expected: str) -> None:
    file = key_file(tmp_path, text, mode)
    with pytest.raises(ef.ConfigError, match=expected) as raised:
        read_key({"EMBERFLOW_KEY_FILE": str(file)})
    assert "sss" not in str(raised.value)
    assert "secretsecret" not in str(raised.value)


def test_a_key_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ef.ConfigError, match="is not set"):
        read_key({})
    with pytest.raises(ef.ConfigError, match="No such file"):
        read_key({"EMBERFLOW_KEY_FILE": str(tmp_path / "none")})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_key_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = key_file(tmp_path, "s" * 64, 0o000)
    with pytest.raises(ef.ConfigError, match="readable for this process"):
        read_key({"EMBERFLOW_KEY_FILE": str(file)})


def test_the_program_parts_the_command_line() -> None:
    command = read_command(
        ["--encrypt", "--data", "train=/x", "--gpus=2", "train.py:train", "--data", "mine"]
    )
    assert (command.program, command.arguments) == ("train.py:train", ("--data", "mine"))
    assert (command.options.data, command.options.gpus, command.options.encrypt) == (["train=/x"], 2, True)


def test_roles_without_a_program_have_options_only() -> None:
    command = read_command(["--log-dir", "/logs"])
    assert (command.program, command.options.log_dir) == (None, "/logs")


def test_an_unknown_option_ends_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        read_command(["--dat", "x", "train.py:train"])
    assert left.value.code == 2
    assert "--dat" in capsys.readouterr().err


def test_a_program_is_run_as_a_module_with_its_arguments(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.argv", ["pytest"])
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    (tmp_path / "neighbour_of_it.py").write_text("WORD = 'hello'\n")
    file = tmp_path / "my_program_here.py"
    file.write_text(
        "import sys\nfrom neighbour_of_it import WORD\n"
        "def train(ctx): return WORD, ctx, sys.argv[1:]\n"
        "if __name__ == '__main__': raise SystemExit\n"
    )
    assert ProgramFile.of(f"{file}:train", ("--epochs", "3"))("ctx") == ("hello", "ctx", ["--epochs", "3"])


@pytest.mark.parametrize(
    ("source", "named", "expected", "fix"),
    [
        ("def train(ctx): ...", "prog.py", "FILE.py:FUNCTION", "train.py:train"),
        ("def train(ctx): ...", "other.py:train", "must be a file", "working_dir"),
        ("def train(ctx): ...", "prog.py:trian", "must define 'trian'", "Did you mean prog.py:train?"),
        ("def train(ctx:", "prog.py:train", "must be Python", "Correct it."),
    ],
)
def test_a_wrong_program_is_refused(
    tmp_path: Path, monkeypatch: Any, source: str, named: str, expected: str, fix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prog.py").write_text(source)
    with pytest.raises(ef.ConfigError, match=expected) as raised:
        ProgramFile.of(named)
    assert fix in raised.value.fix


def test_data_is_named_by_paths(tmp_path: Path) -> None:
    found = sources_of(["/data/train.parquet", "test=/data/test.tfrecord"])
    assert repr(found["train"]) == "Parquet('/data/train.parquet')"
    assert isinstance(found["test"], ef.TFRecords)
    with pytest.raises(ef.ConfigError, match="'train' before"):
        sources_of(["/a.parquet", "train=/b.parquet"])


def test_data_is_named_in_a_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    file = tmp_path / "sources_here.py"
    file.write_text(
        "import emberflow as ef\nplain = ef.Parquet('/a', columns=['x'])\n"
        "def several(): return {'train': plain, 'test': plain}\n"
    )
    assert repr(sources_of([f"{file}:plain"])["train"]) == "Parquet('/a', columns=['x'])"
    assert sorted(sources_of([f"{file}:several"])) == ["test", "train"]


def test_exit_codes_follow_the_cause() -> None:
    raised = ef.NodeFailedError("a", fix="b")
    collateral = ef.NodeFailedError("a", fix="b")
    collateral.is_collateral = True
    transient = ef.StorageError("a", fix="b")
    transient.is_transient = True
    codes = [
        verdict_of(error).code for error in (raised, collateral, transient, ef.StorageError("a", fix="b"))
    ]
    assert codes == [1, 3, 3, 2]
    assert verdict_of(ef.NodeLostError("a", fix="b")).code == 3
    verdict = Verdict(code=3, text="ü")
    assert Verdict.from_bytes(verdict.to_bytes()) == verdict


def test_a_place_without_training_has_no_chief() -> None:
    assert not Place(role="dispatcher", index=0, cluster={"dispatcher": ["a:1"]}).has_chief


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "run.key"
    file.write_text(text)
    file.chmod(mode)
    return file
