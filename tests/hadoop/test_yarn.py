"""Programs on a real YARN: the driver inside the cluster and outside, with the Python environment sent along."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from emberflow.local.daemons import MARK
from emberflow.local.hadoop import LocalHadoop
from tests.conftest import ROOT
from tests.hadoop.yarn_jobs import command, environment, pack_environment, report_of, submit

HERE = Path(__file__).parent
CLI = "org.apache.hadoop.yarn.client.cli"
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_environment(tmp_path_factory.mktemp("packed") / "environment.tar.gz")


def found_in(hadoop: LocalHadoop, folder: str) -> dict[str, Any]:
    """Return what the program wrote to HDFS."""
    found: dict[str, Any] = json.loads(hadoop.run_fs_shell("-cat", f"{folder}/part-*"))
    return found


def containers_of(hadoop: LocalHadoop) -> list[str]:
    """Name the processes that run in containers of this YARN, at any depth."""
    found = []
    for process in psutil.process_iter():
        try:
            env = process.environ()
            if env.get(MARK) == str(hadoop.log_dir) and "CONTAINER_ID" in env:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
        except psutil.Error:
            continue
    return found


def check_training(found: dict[str, Any], mode: str) -> None:
    first, second = found["values"]
    assert first["weights"] == second["weights"]
    assert np.isfinite(first["weights"]).all()
    assert found["mode"] == mode
    for value in found["values"]:
        assert value["python"].endswith("/environment/bin/python"), "the environment was not sent along"
        assert "/containers/" in value["python"]


def test_a_program_trains_with_its_driver_inside_the_cluster(
    hadoop: LocalHadoop, archive: Path, nothing_left: None
) -> None:
    conf = {"spark.yarn.queue": "training"}
    program = HERE / "tiny_training.py"
    done = submit(hadoop, program, "in-cluster", mode="cluster", archive=archive, conf=conf)
    assert done.returncode == 0, done.stderr
    found = found_in(hadoop, "in-cluster")
    check_training(found, "cluster")
    assert found["driver"].endswith("/environment/bin/python")
    report = report_of(hadoop, found["application"])
    assert (report["queue"], report["finalStatus"]) == ("root.training", "SUCCEEDED")
    assert containers_of(hadoop) == []


@pytest.mark.full
def test_a_program_trains_with_its_driver_outside(
    hadoop: LocalHadoop, archive: Path, nothing_left: None
) -> None:
    done = submit(hadoop, HERE / "tiny_training.py", "outside", mode="client", archive=archive)
    assert done.returncode == 0, done.stderr
    found = found_in(hadoop, "outside")
    check_training(found, "client")
    assert found["driver"] == sys.executable
    assert containers_of(hadoop) == []


@pytest.mark.full
@pytest.mark.fault
@pytest.mark.parametrize(
    ("way", "words"),
    [
        (
            "memory",
            [
                "Container killed by YARN for exceeding physical memory limits",
                "I take two gigabytes",
                "Start the session with spark.executor.memoryOverhead=2g or more",
            ],
        ),
        ("executor", ["Exit status: 137", "Last lines of its log:"]),
        ("node", ["was killed by SIGKILL"]),
    ],
)
def test_a_lost_node_is_an_error_with_yarns_reason_and_where_its_logs_are(
    hadoop: LocalHadoop, archive: Path, nothing_left: None, way: str, words: list[str]
) -> None:
    done = submit(hadoop, HERE / "lost_node.py", f"lost-{way}", way, mode="client", archive=archive)
    assert done.returncode == 0, done.stderr
    found = found_in(hadoop, f"lost-{way}")
    assert found["rank"] == 1
    application = found["application"]
    for word in [*words, f"YARN: {application} is RUNNING", f"yarn logs -applicationId {application}"]:
        assert word in found["error"]
    assert containers_of(hadoop) == []
    logs = hadoop.run_command(f"{CLI}.LogsCLI", "-applicationId", application)
    assert "LogType:stderr" in logs.output.replace(" ", "")


@pytest.mark.full
@pytest.mark.fault
def test_an_application_that_is_killed_in_yarn_says_so(
    hadoop: LocalHadoop, archive: Path, nothing_left: None
) -> None:
    program = HERE / "lost_node.py"
    arguments = [*command(hadoop, "client", archive, {}), str(program), "killed", "wait"]
    pipe = subprocess.PIPE
    env = environment(hadoop)
    with subprocess.Popen(arguments, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=env) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "the nodes are up" in line:
                break
        application = next(word for word in said.split() if word.startswith("application_"))
        killed = hadoop.run_command(f"{CLI}.ApplicationCLI", "application", "-kill", application)
        assert killed.code == 0, killed
        said += process.stdout.read()
    assert f"YARN: {application} is KILLED, KILLED: " in said, said
    assert "killed by user" in said
    assert containers_of(hadoop) == []


@pytest.mark.full
def test_node_labels_arrive_at_yarn(hadoop: LocalHadoop, archive: Path, nothing_left: None) -> None:
    # This YARN has no labels and refuses the request, which shows that it got it.
    conf = {"spark.yarn.am.nodeLabelExpression": "gpu", "spark.yarn.submit.waitAppCompletion": "true"}
    done = submit(hadoop, HERE / "tiny_training.py", "label", mode="cluster", archive=archive, conf=conf)
    assert done.returncode != 0
    assert "request contains label expression" in done.stderr


def write_digits(folder: Path, rows: int) -> Path:
    """Write the four files of MNIST with a few random images."""
    folder.mkdir()
    numbers = np.random.default_rng(0)
    for prefix in ("train", "t10k"):
        images = numbers.integers(0, 256, (rows, 28, 28)).astype(np.uint8)
        labels = numbers.integers(0, 10, rows).astype(np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            (folder / f"{prefix}-{name}-ubyte").write_bytes(header + array.tobytes())
    return folder


@pytest.mark.full
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_mnist_example_uses_the_clusters_spark_and_its_home(
    hadoop: LocalHadoop, archive: Path, tmp_path: Path, nothing_left: None, mode: str
) -> None:
    digits = write_digits(tmp_path / "digits", 128)
    output = f"mnist-{mode}"  # relative: in the user's home on HDFS
    arguments = (str(digits), "--epochs", "1", "--output", output)
    done = submit(hadoop, ROOT / "examples" / "mnist.py", *arguments, mode=mode, archive=archive)
    assert done.returncode == 0, done.stderr
    assert f"{hadoop.home}/{output}/model.keras" in hadoop.run_fs_shell("-ls", f"{hadoop.home}/{output}")
    assert containers_of(hadoop) == []
