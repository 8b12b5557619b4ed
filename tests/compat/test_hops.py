"""Programs of Hops: what the session is configured with, and trials that do not lose each other."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from hops import hdfs, tensorboard, tflauncher, util
from spark_tensorflow_distributor import MirroredStrategyRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(400)]


def trial(rate: float, units: int) -> float:
    from pathlib import Path

    from hops import hdfs, tensorboard

    if units > 16:
        raise ValueError(f"{units} units do not fit")
    hdfs.log(f"rate {rate}")
    Path(tensorboard.logdir(), "events").write_text(hdfs.project_path())
    return rate * units


def outcomes_in(root: str) -> dict[str, Any]:
    return {path.parent.name: json.loads(path.read_text()) for path in Path(root).glob("*/outcome.json")}


def test_a_failed_trial_does_not_lose_the_others(
    spark_cluster: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("HOPS_PROJECT_PATH", str(tmp_path))
    assert (util.num_executors(spark_cluster), util.num_param_servers(spark_cluster)) == (2, 0)
    with caplog.at_level(logging.WARNING, "emberflow"):
        root = tflauncher.launch(
            spark_cluster, trial, util.grid_params({"rate": [0.5], "units": [8, 32, 16]})
        )
    assert root.startswith(f"{tmp_path}/Logs/TensorFlow/{spark_cluster.sparkContext.applicationId}/runId.")
    outcomes = outcomes_in(root)
    assert {name: (told["state"], told["value"]) for name, told in outcomes.items()} == {
        "rate=0.5.units=8": ("FINISHED", 4.0),
        "rate=0.5.units=16": ("FINISHED", 8.0),
        "rate=0.5.units=32": ("FAILED", None),
    }
    assert "32 units do not fit" in outcomes["rate=0.5.units=32"]["error"]
    assert "32 units do not fit" in caplog.text
    kept = Path(root, "rate=0.5.units=8")
    assert (kept / "events").read_text() == f"{tmp_path}/"
    assert (kept / "trial.log").read_text().endswith("rate 0.5\n")


@pytest.mark.full
def test_a_function_without_arguments_runs_once_and_its_error_is_raised(
    spark_cluster: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPS_PROJECT_PATH", str(tmp_path))

    def wrapper() -> None:
        raise KeyError("no such file")

    with pytest.raises(ef.NodeFailedError, match=r"(?s)No trial succeeded.*no such file.*runId\.") as failed:
        tflauncher.launch(spark_cluster, wrapper)
    with pytest.raises(ValueError, match="must have a list for each argument"):
        tflauncher.launch(spark_cluster, wrapper, {"rate": [1]})  # starts nothing, and is not counted
    root = tflauncher.launch(spark_cluster, lambda: 1)
    numbers = [int(text.rpartition("runId.")[2].rstrip(".")) for text in (failed.value.fix, root)]
    assert numbers[1] == numbers[0] + 1


@pytest.mark.full
def test_a_trial_that_is_killed_does_not_lose_the_others(
    spark_cluster: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("HOPS_PROJECT_PATH", str(tmp_path))

    def wrapper(place: int) -> int:
        import os
        import signal

        if place == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return place

    with caplog.at_level(logging.WARNING, "emberflow"):
        root = tflauncher.launch(spark_cluster, wrapper, {"place": [0, 1, 2]})
    assert "Trial place=1 failed" in caplog.text
    assert "SIGKILL" in caplog.text
    assert {name: told["value"] for name, told in outcomes_in(root).items()} == {"place=0": 0, "place=2": 2}


@pytest.mark.full
def test_connect_is_refused_with_what_to_use_instead(spark_connect: "SparkSession") -> None:
    with pytest.raises(ef.ClusterError, match=r"On Spark Connect use ef\.run_parallel"):
        tflauncher.launch(spark_connect, trial)
    with pytest.raises(
        ef.ClusterError, match=r"util\.num_executors needs the SparkContext of a classic session"
    ):
        util.num_executors(spark_connect)
    with pytest.raises(
        ef.ClusterError, match=r"(?s)MirroredStrategyRunner .* use ef\.run\(train_fn, workers=2\)"
    ):
        MirroredStrategyRunner(num_slots=2, use_gpu=False)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"rate": [1.0], "units": [8, 16]}, "Length of each function argument list must be equal"),
        ({"rate": [], "units": []}, "1 or more"),
        ({"rate": [1.0]}, "a list for each argument"),
        ({"rate": [1.0], "units": [8], "drop": [0.5]}, "a list for each argument"),
    ],
)
def test_lists_that_do_not_fit_the_function_are_refused(args: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        tflauncher.calls_of(trial, args)


def test_equal_trials_have_folders_of_their_own() -> None:
    calls = tflauncher.calls_of(trial, {"rate": [1.0, 1.0], "units": [8, 8]})
    assert [*calls] == ["rate=1.0.units=8", "rate=1.0.units=8.1"]


class Settings(dict[str, str]):
    """A session that is only settings."""

    @property
    def conf(self) -> "Settings":
        return self


@pytest.mark.parametrize(
    ("settings", "environment", "expected"),
    [
        ({"spark.tensorflow.num.ps": "2", "spark.executorEnv.NUM_TF_PS": "1"}, "3", 2),
        ({"spark.executorEnv.NUM_TF_PS": "1"}, "3", 1),
        ({}, "3", 3),
        ({}, None, 0),
    ],
)
def test_parameter_servers_are_those_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], environment: str | None, expected: int
) -> None:
    monkeypatch.delenv("NUM_TF_PS", raising=False)
    if environment:
        monkeypatch.setenv("NUM_TF_PS", environment)
    session: Any = Settings(settings)
    assert util.num_param_servers(session) == expected


def test_executors_are_those_of_the_settings() -> None:
    session: Any = Settings({"spark.executor.instances": "4"})
    assert util.num_executors(session) == 4
    session["spark.dynamicAllocation.maxExecutors"] = "6"
    assert util.num_executors(session) == 6


def test_the_project_is_the_first_part_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOPS_PROJECT_PATH", raising=False)
    monkeypatch.setenv("HADOOP_USER_NAME", "images__meb10000")
    assert (hdfs.project_name(), hdfs.project_user()) == ("images", "images__meb10000")
    assert hdfs.project_path() + "Resources/mnist" == "hdfs:///Projects/images/Resources/mnist"


def test_a_log_folder_belongs_to_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORBOARD_LOGDIR", raising=False)
    with pytest.raises(ef.ConfigError, match="belongs to a trial"):
        tensorboard.logdir()
    hdfs.log("nobody reads this")
