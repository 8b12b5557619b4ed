"""The program side without Spark: renderings for Compose and Kubernetes, executed on this machine, train."""

import json
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emberflow.deploy import Job, Role, Secret, load
from tests.docs.pages import blocks_of
from tests.rendered_tasks import local, running, tasks_of

ROWS = 96
WITHIN = 240.0
PROGRAM = Path(__file__).with_name("managed_program.py")


def job(program: str, *args: str, options: tuple[str, ...] = (), **roles: int) -> Job:
    return Job(
        name="small",
        image="small:1",
        args=(*options, f"{PROGRAM.name}:{program}", *args),
        roles={role.replace("_", "-"): Role(replicas=count) for role, count in roles.items()},  # type: ignore[misc]
        key_secret=Secret(name="small-key", file="./small.key"),
        log_dir="logs",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return prepare(tmp_path)


def prepare(folder: Path) -> Path:
    """Put the program and its rows into a folder, which all tasks share."""
    shutil.copy(PROGRAM, folder)
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, 4)).astype("float32")
    y = (x @ np.array([1.0, -2.0, 0.5, 0.0], "float32")).astype("float32")
    table = pa.table({"x": pa.array(list(x), pa.list_(pa.float32())), "y": y})
    pq.write_table(table, folder / "rows.parquet", row_group_size=16)
    return folder


def train(folder: Path, target: str, workers: int, *more: str) -> list[list[np.ndarray]]:
    """Train data-parallel on so many workers; return the weights of each."""
    options = ("--data", "train=rows.parquet", "--checkpoint-dir", "saved", *more)
    described = job("train", str(ROWS // workers), options=options, worker=workers)
    with running(local(tasks_of(described, target), folder), folder) as tasks:
        assert set(tasks.codes(WITHIN).values()) == {0}, tasks.outputs()
    return [list(np.load(folder / f"weights-{rank}.npz").values()) for rank in range(workers)]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """The weights that one process gets from the same program."""
    folder = prepare(tmp_path_factory.mktemp("one"))
    (weights,) = train(folder, "docker-compose", 1)
    return weights


@pytest.mark.parametrize("target", ["docker-compose", "kubernetes"])
def test_two_workers_equal_one_process(
    folder: Path, target: str, one_process: list[np.ndarray], nothing_left: None
) -> None:
    for weights in train(folder, target, 2):
        for mine, expected in zip(weights, one_process, strict=True):
            np.testing.assert_allclose(mine, expected, atol=1e-5, rtol=0)
    assert (folder / "exported" / "saved_model.pb").exists()
    assert list((folder / "saved").glob("attempt-00000-*/*"))


@pytest.mark.parametrize("target", ["docker-compose", "kubernetes"])
def test_chief_worker_and_ps_train(folder: Path, target: str, nothing_left: None) -> None:
    options = ("--data", "rows.parquet", "--strategy", "parameter_server")
    described = job("coordinate", options=options, chief=1, worker=1, ps=1)
    with running(local(tasks_of(described, target), folder), folder) as tasks:
        assert tasks.codes(WITHIN) == {"chief-0": 0, "worker-0": 0, "ps-0": 0}, tasks.outputs()
    assert "losses" in tasks.output("chief-0")
    assert (folder / "weights.npz").exists()


@pytest.mark.full
@pytest.mark.parametrize("more", [("--encrypt",), ("--transport", "collectives")])
def test_other_options_give_the_same_weights(
    folder: Path, more: tuple[str, ...], one_process: list[np.ndarray], nothing_left: None
) -> None:
    for weights in train(folder, "docker-compose", 2, *more):
        for mine, expected in zip(weights, one_process, strict=True):
            np.testing.assert_allclose(mine, expected, atol=1e-5, rtol=0)


@pytest.mark.full
def test_workers_average_on_a_ps(folder: Path, nothing_left: None) -> None:
    options = ("--data", "rows.parquet", "--strategy", "periodic")
    described = job("average", options=options, chief=1, worker=1, ps=1)
    with running(local(tasks_of(described, "kubernetes"), folder), folder) as tasks:
        assert set(tasks.codes(WITHIN).values()) == {0}, tasks.outputs()
    assert sorted(path.name for path in folder.glob("averaged-*")) == ["averaged-0.npz", "averaged-1.npz"]


def test_the_program_and_the_description_of_the_page_train(folder: Path, nothing_left: None) -> None:
    blocks = [block.text for block in blocks_of("docs/deploy.md")]
    for name in ("train.py", "job.yaml"):
        (text,) = [text for text in blocks if text.startswith(f"# {name}\n")]
        (folder / name).write_text(text.replace("/data/", f"{folder}/"))
    (folder / "rows.parquet").rename(folder / "train.parquet")
    described = load(folder / "job.yaml", ["roles.worker.replicas=1"])
    with running(local(tasks_of(described, "kubernetes"), folder), folder) as tasks:
        assert tasks.codes(WITHIN) == {"chief-0": 0, "worker-0": 0}, tasks.outputs()
    assert (folder / "model" / "saved_model.pb").exists()
    assert "Epoch 3/3" in tasks.output("chief-0")


def test_a_data_service_delivers_and_ends_with_the_chief(folder: Path, nothing_left: None) -> None:
    (folder / "logs").mkdir()
    described = job("from_service", chief=1, dispatcher=1, data_worker=2)
    with running(local(tasks_of(described, "kubernetes"), folder), folder) as tasks:
        codes = tasks.codes(WITHIN)
    assert codes == dict.fromkeys(("chief-0", "dispatcher-0", "data-worker-0", "data-worker-1"), 0), (
        tasks.outputs()
    )
    assert eval((folder / "found").read_text()) == [number * number for number in range(100)]


@pytest.mark.full
def test_a_data_service_by_itself_runs_until_it_is_told_to_end(folder: Path, nothing_left: None) -> None:
    described = job("from_service", dispatcher=1, data_worker=1)
    placed = local(tasks_of(described, "tf-data-service"), folder)
    with running(placed, folder) as tasks:
        tasks.await_text("data-worker-0", "running", WITHIN)
        address = json.loads(placed[0].env["EMBERFLOW_CLUSTER"])["dispatcher"][0]
        user = ["-c", f"import managed_program as program; program.elements('grpc://{address}')"]
        subprocess.run([sys.executable, *user], cwd=folder, check=True, timeout=WITHIN)
        for name in tasks.processes:
            tasks.kill(name, signal.SIGTERM)
        assert set(tasks.codes(WITHIN).values()) == {143}, tasks.outputs()
    assert eval((folder / "found").read_text()) == [number * number for number in range(100)]


def test_tensorboard_shows_the_logs_until_the_chief_is_done(folder: Path, nothing_left: None) -> None:
    (folder / "logs").mkdir()
    (folder / "waiting.py").write_text(
        "import pathlib, time\n"
        "def wait(ctx):\n"
        "    while not pathlib.Path('seen').exists(): time.sleep(0.05)\n"
    )
    described = job("wait", chief=1, tensorboard=1)
    placed = local(tasks_of(described, "docker-compose"), folder)
    chief = placed[0]
    placed[0] = type(chief)(chief.name, (*chief.command[:3], "waiting.py:wait"), chief.env)
    with running(placed, folder) as tasks:
        tasks.await_text("tensorboard-0", "TensorBoard: http://127.0.0.1:", WITHIN)
        url = tasks.output("tensorboard-0").partition("TensorBoard: ")[2].split()[0]
        assert b"TensorBoard" in urllib.request.urlopen(url, timeout=30).read()
        (folder / "seen").touch()
        codes = tasks.codes(WITHIN)
    assert codes == {"chief-0": 0, "tensorboard-0": 0}, tasks.outputs()
