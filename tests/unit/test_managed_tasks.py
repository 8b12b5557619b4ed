"""`python -m emberflow.node` as cluster managers run it: commands and variables of renderings, no TensorFlow."""

import signal
import time
from pathlib import Path

import psutil
import pytest

from emberflow._record.record_files import read_record, records_in
from emberflow._record.run_state import RunState
from emberflow.cli.runs import run_runs
from emberflow.deploy import Job, Role, Secret
from tests.rendered_tasks import Running, Task, local, running, tasks_of

WITHIN = 60.0
SECONDS = 15.0  # in which all tasks end after a failure, on a busy machine

PROGRAM = """
import pathlib, sys, threading

def train(ctx):
    print("arguments", sys.argv[1:])
    if ctx.role in ("ps", "evaluator"):
        ctx.wait_until_over()
        print(f"the {ctx.role} may leave")
        return None
    everyone = ctx.all_gather(f"{ctx.role}-{ctx.index} is rank {ctx.rank}")
    if ctx.is_chief:
        pathlib.Path("met").write_text(repr(everyone))
    return everyone

def fail(ctx):
    if ctx.role == "worker":
        raise ValueError("no such luck")
    threading.Event().wait()

def hang(ctx):
    print("at work")
    threading.Event().wait()

def use_service(ctx):
    ctx.data_service()

def save(ctx):
    found = ctx.latest_checkpoint()
    print("found", found and found.step)
    ctx.all_gather()
    ctx.save_checkpoint(lambda folder: (folder / "x").write_text("1"), step=found.step + 1 if found else 1)
"""


def job(program: str, *args: str, options: tuple[str, ...] = (), **roles: int) -> Job:
    return Job(
        name="small",
        image="small:1",
        args=(*options, f"prog.py:{program}", *args),
        roles={role.replace("_", "-"): Role(replicas=count) for role, count in roles.items()},  # type: ignore[misc]
        key_secret=Secret(name="small-key", file="./small.key"),
        log_dir="logs",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prog.py").write_text(PROGRAM)
    return tmp_path


@pytest.mark.parametrize("target", ["docker-compose", "kubernetes"])
def test_all_tasks_meet_and_end(folder: Path, target: str, nothing_left: None) -> None:
    described = job("train", "--name={name}", "$5 $(HOME) {task_index}", chief=1, worker=2, ps=1, evaluator=1)
    with running(local(tasks_of(described, target), folder), folder) as tasks:
        codes = tasks.codes(WITHIN)
    assert codes == dict.fromkeys(("chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0"), 0), (
        tasks.outputs()
    )
    assert eval((folder / "met").read_text()) == [
        "chief-0 is rank 0",
        "worker-0 is rank 1",
        "worker-1 is rank 2",
    ]
    assert "[worker 2] arguments ['--name=small', '$5 $(HOME) 1']" in tasks.output("chief-0")
    assert "the ps may leave" in tasks.output("ps-0")
    assert "the evaluator may leave" in tasks.output("evaluator-0")


def test_the_chief_writes_the_record_of_a_run(folder: Path, nothing_left: None) -> None:
    described = job("train", options=("--record", "runs"), chief=1, worker=1)
    with running(local(tasks_of(described, "kubernetes"), folder), folder) as tasks:
        assert tasks.codes(WITHIN) == {"chief-0": 0, "worker-0": 0}, tasks.outputs()
    (path,) = records_in(str(folder / "runs"))
    state = read_record(path)
    assert state.started is not None
    assert (state.started.name, state.status) == ("train", "succeeded")
    assert state.started.options["workers"] == 2
    assert "spark" not in state.started.versions
    assert state.plan["launch"] == "manager"
    assert [(node.role, node.state) for node in state.nodes.values()] == [
        ("chief", "returned"),
        ("worker", "returned"),
    ]
    assert state.logs[1].lines[0][2] == "arguments []"
    assert run_runs(str(folder / "runs"), None) == 0


@pytest.mark.fault
def test_a_killed_task_and_a_chief_that_is_told_to_end_are_in_the_record(
    folder: Path, nothing_left: None
) -> None:
    described = job("hang", options=("--record", "runs"), chief=1, worker=1)
    for name, number in (("worker-0", signal.SIGKILL), ("chief-0", signal.SIGTERM)):
        with running(local(tasks_of(described, "docker-compose"), folder), folder) as tasks:
            for each in tasks.processes:
                tasks.await_text(each, "at work", WITHIN)
            tasks.kill(name, number)
            tasks.codes(WITHIN)
    lost, ended = sorted((read_record(path) for path in records_in(str(folder / "runs"))), key=began)
    assert lost.failure is not None
    assert (lost.failure.kind, lost.failure.rank, lost.nodes[1].state) == ("NodeLostError", 1, "lost")
    assert ended.failure is not None
    assert (ended.status, ended.failure.problem) == ("failed", "The run was interrupted.")


def began(state: RunState) -> float:
    assert state.started is not None
    return state.started.at


@pytest.mark.fault
def test_a_record_that_cannot_be_written_ends_all_with_code_2(folder: Path, nothing_left: None) -> None:
    (folder / "runs").write_text("a file")
    described = job("train", options=("--record", "runs"), chief=1, worker=1)
    with running(local(tasks_of(described, "kubernetes"), folder), folder) as tasks:
        codes = tasks.codes(WITHIN)
    assert set(codes.values()) == {2}, tasks.outputs()
    assert all("The record of a run must be written to a folder" in tasks.output(name) for name in codes)


@pytest.mark.fault
def test_an_error_is_told_to_all(folder: Path, nothing_left: None) -> None:
    with running(
        local(tasks_of(job("fail", chief=1, worker=1, ps=1), "kubernetes"), folder), folder
    ) as tasks:
        codes = tasks.codes(WITHIN)
    assert codes == {"chief-0": 1, "worker-0": 1, "ps-0": 1}, tasks.outputs()
    for name in codes:
        assert "Worker 1 on 127.0.0.1 failed. Your function raised:" in tasks.output(name)
        assert "ValueError: no such luck" in tasks.output(name)
        assert f'File "{folder}/prog.py", line 17, in fail' in tasks.output(name)


@pytest.mark.fault
@pytest.mark.parametrize("killed", ["worker-0", "chief-0"])
def test_a_killed_task_ends_all_others(folder: Path, killed: str, nothing_left: None) -> None:
    with running(
        local(tasks_of(job("hang", chief=1, worker=1, ps=1), "docker-compose"), folder), folder
    ) as tasks:
        for name in tasks.processes:
            tasks.await_text(name, "at work", WITHIN)
        tasks.kill(killed)
        started = time.monotonic()
        codes = tasks.codes(WITHIN)
        assert time.monotonic() - started < SECONDS
    assert codes == {name: -signal.SIGKILL if name == killed else 3 for name in codes}
    named = "Worker 1 on 127.0.0.1 was lost" if killed == "worker-0" else "The chief at 127.0.0.1:"
    for name in codes.keys() - {killed}:
        assert named in tasks.output(name)
        assert "Spark" not in tasks.output(name)


def test_the_key_is_in_no_argument_variable_or_log(folder: Path, nothing_left: None) -> None:
    with running(local(tasks_of(job("hang", worker=2), "docker-compose"), folder), folder) as tasks:
        for name in tasks.processes:
            tasks.await_text(name, "at work", WITHIN)
        found = [psutil.Process(process.pid) for process in tasks.processes.values()]
        found += [child for process in found for child in process.children(recursive=True)]
        texts = [repr((process.cmdline(), process.environ())) for process in found]
        key = (folder / "run.key").read_text()
    assert len(found) == 6  # of each worker the task, its keeper and its node
    assert not [text for text in (*texts, tasks.outputs()) if key in text]


@pytest.mark.fault
def test_a_task_that_is_told_to_end_ends_all(folder: Path, nothing_left: None) -> None:
    with running(local(tasks_of(job("hang", worker=2), "kubernetes"), folder), folder) as tasks:
        for name in tasks.processes:
            tasks.await_text(name, "at work", WITHIN)
        tasks.kill("worker-0", signal.SIGTERM)
        codes = tasks.codes(SECONDS)
    assert codes == {"worker-0": 143, "worker-1": 3}, tasks.outputs()
    assert "was told to end" in tasks.output("worker-1")


@pytest.mark.fault
def test_another_key_is_refused(folder: Path, nothing_left: None) -> None:
    chief, worker = local(tasks_of(job("hang", worker=2), "docker-compose"), folder)
    other = folder / "other.key"
    other.write_text("x" * 64)
    other.chmod(0o600)
    with running([chief], folder) as tasks:
        tasks.await_text("worker-0", "joined: 1 of 2", WITHIN)
        tasks.start(worker, EMBERFLOW_KEY_FILE=str(other))
        assert tasks.processes["worker-1"].wait(SECONDS) == 2, tasks.outputs()
        assert "must hold the same key" in tasks.output("worker-1")
        assert "x" * 64 not in tasks.outputs()
        tasks.start(worker)  # the chief has gone on waiting for the right one
        tasks.await_text("worker-0", "joined: 2 of 2", WITHIN)
        tasks.kill("worker-0", signal.SIGTERM)
        tasks.codes(SECONDS)


@pytest.mark.fault
def test_tasks_that_do_not_come_are_named(folder: Path, nothing_left: None) -> None:
    described = job("hang", options=("--start-timeout", "2"), worker=2)
    chief, worker = local(tasks_of(described, "docker-compose"), folder)
    with running([chief], folder) as tasks:
        assert tasks.codes(SECONDS) == {"worker-0": 3}
        assert "nothing was heard of worker 1" in tasks.output("worker-0")
    with running([worker], folder) as tasks:
        assert tasks.codes(SECONDS) == {"worker-1": 3}
        assert "must answer within 2 s" in tasks.output("worker-1")


@pytest.mark.fault
def test_data_that_is_not_there_ends_all_with_code_2(folder: Path, nothing_left: None) -> None:
    described = job("train", options=("--data", "nothing.parquet"), chief=1, worker=1, ps=1)
    with running(local(tasks_of(described, "kubernetes"), folder), folder) as tasks:
        codes = tasks.codes(SECONDS)
    assert set(codes.values()) == {2}, tasks.outputs()
    assert all("nothing.parquet" in tasks.output(name) for name in codes)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"EMBERFLOW_KEY_FILE": "/nowhere/key"}, "No such file"),
        ({"EMBERFLOW_KEY_FILE": ""}, "EMBERFLOW_KEY_FILE is not set"),
        ({"EMBERFLOW_CLUSTER": "[]"}, "must be an object in JSON"),
    ],
)
def test_wrong_variables_end_with_code_2(folder: Path, change: dict[str, str], expected: str) -> None:
    _, worker = local(tasks_of(job("hang", worker=2), "docker-compose"), folder)
    tasks = Running(folder)
    tasks.start(worker, **change)
    assert tasks.codes(WITHIN) == {"worker-1": 2}
    assert expected in tasks.output("worker-1")
    assert "Traceback" not in tasks.output("worker-1")


def test_a_job_without_a_dispatcher_has_no_data_service(folder: Path, nothing_left: None) -> None:
    with running(local(tasks_of(job("use_service", worker=1), "kubernetes"), folder), folder) as tasks:
        assert tasks.codes(WITHIN) == {"worker-0": 1}
    assert "ctx.data_service needs a tf.data service" in tasks.output("worker-0")
    assert "dispatcher: {replicas: 1}" in tasks.output("worker-0")


def test_the_next_start_finds_the_checkpoints(folder: Path, nothing_left: None) -> None:
    described = job("save", options=("--checkpoint-dir", "saved"), worker=2)
    for found in ("found None", "found 1"):
        with running(local(tasks_of(described, "docker-compose"), folder), folder) as tasks:
            assert set(tasks.codes(WITHIN).values()) == {0}, tasks.outputs()
        assert found in tasks.output("worker-1")


@pytest.mark.fault
def test_a_task_that_is_started_again_too_early_joins_the_next_run(folder: Path, nothing_left: None) -> None:
    chief, worker = local(tasks_of(job("hang", worker=2), "docker-compose"), folder)
    with running([chief, worker], folder) as tasks:
        tasks.await_text("worker-0", "[worker 1] at work", WITHIN)
        first = tasks.processes["worker-1"]
        early = Task("early", worker.command, worker.env)
        tasks.start(early)
        tasks.await_text("early", "it still ends the run before", WITHIN)
        first.kill()
        assert tasks.processes["worker-0"].wait(SECONDS) == 3, tasks.outputs()
        tasks.start(chief)
        tasks.await_text("early", "at work", WITHIN)


def test_tf_config_alone_is_enough(folder: Path, nothing_left: None) -> None:
    described = local(tasks_of(job("train", chief=1, worker=1), "kubernetes"), folder)
    tasks = Running(folder)
    for task in described:
        env = {name: task.env[name] for name in ("TF_CONFIG", "EMBERFLOW_KEY_FILE")}
        tasks.start(Task(task.name, task.command, env))
    assert set(tasks.codes(WITHIN).values()) == {0}, tasks.outputs()
