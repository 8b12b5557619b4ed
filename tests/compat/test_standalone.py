"""The parts that programs start themselves: managers, reservations, single nodes, GPUs; without Spark jobs."""

import argparse
import os
import random
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext

from tensorflowonspark import TFManager, TFSparkNode, gpu_info, reservation, util
from tensorflowonspark.reservation import Client, Reservations, Server


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())


def test_a_manager_is_shared_by_its_key() -> None:
    manager = TFManager.start(b"key", ["input"], "remote")
    assert manager.address[0] == "127.0.0.1"
    manager.set("state", "running")
    other = TFManager.connect(manager.address, b"key")
    other.get_queue("input").put([1, "a"])
    assert manager.get_queue("input").get() == [1, "a"]
    assert str(other.get("state")) == "'running'"
    with pytest.raises(Exception, match="digest"):
        TFManager.connect(manager.address, b"wrong")


def test_reservations_are_replaced_by_their_keys() -> None:
    kept = Reservations(required=2, primary_keys=["node"])
    kept.add({"node": 1})
    assert (kept.done(), kept.remaining()) == (False, 1)
    kept.add({"node": 2})
    kept.upsert({"node": 1, "data": "new"})
    assert (kept.done(), kept.remaining(), len(kept.get())) == (True, 0, 2)


def test_clients_wait_for_each_other() -> None:
    server = Server(4, ["node"])
    address = server.start()
    found: list[Any] = []

    def reserve(number: int) -> None:
        client = Client(address)
        assert client.register({"node": number, "key": b"k", "addr": ("h", 1)}) == "OK"
        found.append(client.await_reservations())
        client.close()

    threads = [threading.Thread(target=reserve, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [len(each) for each in found] == [4] * 4
    assert (found[0][0]["key"], found[0][0]["addr"]) == (b"k", ("h", 1))
    Client(address).request_stop()
    assert server.done


def test_a_stranger_runs_no_code_and_ends_no_server() -> None:
    server = Server(1)
    address = server.start()
    for sent in (b"\x00\x00\x00\x05\x80\x04K\x01.", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02[]"):
        client = Client(address)
        client.sock.sendall(sent)
        client.sock.recv(1)
        client.close()
    assert Client(address).register({"node": 1}) == "OK"
    server.stop()


def test_host_and_ports_by_variables() -> None:
    server = Server(1)
    assert server.get_server_ip() == util.get_ip_address()
    os.environ["TFOS_SERVER_HOST"] = "my_host"
    assert server.get_server_ip() == "my_host"
    os.environ["TFOS_SERVER_PORT"] = "9997-9999"
    assert server.get_server_ports() == [9997, 9998, 9999]
    del os.environ["TFOS_SERVER_HOST"]
    held = Server(1)
    del os.environ["TFOS_SERVER_PORT"]
    taken = held.start_listening_socket().getsockname()[1]
    os.environ["TFOS_SERVER_PORT"] = str(taken)
    with pytest.raises(reservation.ReservationError, match="none of"):
        server.start_listening_socket()
    held.stop()


@pytest.fixture
def meta() -> Iterator[dict[str, Any]]:
    """What `TFSparkNode.run` takes of a cluster of one."""
    server = Server(1)
    yield {
        "id": random.getrandbits(64),
        "cluster_template": {"chief": [0]},
        "num_executors": 1,
        "default_fs": "file://",
        "working_dir": ".",
        "server_addr": server.start(),
    }
    server.stop()


def run_alone(meta: dict[str, Any], fn: Any, *arguments: str, number: int = 0) -> None:
    parser = argparse.ArgumentParser()
    if arguments:
        parser.add_argument("--num_gpus", type=int)
    args = parser.parse_args(arguments)
    TFSparkNode.run(fn, args, meta, False, None, ["input"], False)([number])


def test_one_node_alone(meta: dict[str, Any]) -> None:
    seen = []
    run_alone(meta, lambda _, ctx: seen.append((ctx.job_name, ctx.task_index, ctx.num_workers)))
    assert seen == [("chief", 0, 1)]
    assert util.read_executor_id() == 0
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert TaskContext.get() is None  # where there is one, PySpark refuses to start a session in this process


QUEUES = ["input", "output", "error"]


def run_behind(meta: dict[str, Any], fn: Any) -> list[dict[str, Any]]:
    """Start a node that runs on after its task; return what other tasks know of it."""
    TFSparkNode.run(fn, {}, meta, False, None, QUEUES, True)([0])
    client = Client(meta["server_addr"])
    found = client.get_reservations()
    client.close()
    return found


def test_a_node_behind_its_task_is_fed_asked_and_ended(meta: dict[str, Any]) -> None:
    is_over = threading.Event()

    def square(args: Any, ctx: Any) -> None:
        feed = ctx.get_data_feed(train_mode=False)
        while not feed.should_stop():
            feed.batch_results([x * x for x in feed.next_batch(2)])
        is_over.set()

    nodes = run_behind(meta, square)
    assert TFSparkNode.inference(nodes)([1, 2, 3]) == [1, 4, 9]
    assert TFSparkNode.inference(nodes)([4]) == [16]
    assert TFSparkNode.shutdown(nodes, queues=QUEUES)([]) == [True]
    assert is_over.wait(30)


def test_a_node_behind_its_task_tells_that_it_terminates(meta: dict[str, Any]) -> None:
    taken: list[int] = []

    def take_two(args: Any, ctx: Any) -> None:
        feed = ctx.get_data_feed()
        taken.extend(feed.next_batch(2))
        feed.terminate()

    nodes = run_behind(meta, take_two)
    assert TFSparkNode.train(nodes, meta, feed_timeout=30)(range(100)) == [True]
    assert TFSparkNode.train(nodes, meta, feed_timeout=30)(range(100)) == [True]
    assert taken == [0, 1]


def test_the_error_of_a_node_behind_its_task_is_raised_where_it_is_fed(meta: dict[str, Any]) -> None:
    def fail(args: Any, ctx: Any) -> None:
        ctx.get_data_feed().next_batch(1)
        raise ValueError("on the first row")

    nodes = run_behind(meta, fail)
    for _ in range(2):  # Spark repeats a failed task
        with pytest.raises(Exception, match=r"Exception in worker:(.|\n)*on the first row"):
            TFSparkNode.train(nodes, meta, feed_timeout=30)(range(10))
    with pytest.raises(Exception, match="on the first row"):
        TFSparkNode.shutdown(nodes)([])


def test_gpus_of_a_node_alone(meta: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def get_gpus(*args: Any, **options: Any) -> list[str]:
        calls.append((args, options))
        return ["5"]

    with pytest.raises(Exception, match=r"Unable to allocate 1 GPU\(s\)"):
        run_alone(meta, print, "--num_gpus", "1")
    monkeypatch.setattr(gpu_info, "is_gpu_available", lambda: True)
    monkeypatch.setattr(gpu_info, "get_gpus", get_gpus)
    run_alone(meta, lambda _, __: None)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"
    assert calls[-1] == ((1, 0), {"format": gpu_info.AS_LIST})

    spec = {"chief": ["1.1.1.1:2222"], "worker": ["1.1.1.1:2223", "1.1.1.1:2224", "1.1.1.10:2222"]}
    monkeypatch.setattr(TFSparkNode, "_get_cluster_spec", lambda _: spec)
    meta["cluster_template"] = {"chief": [0], "worker": [1, 2, 3]}
    run_alone(meta, lambda _, __: None, "--num_gpus", "1", number=2)
    assert calls[-1] == ((1, 2), {"format": gpu_info.AS_LIST})


def test_free_gpus_are_those_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "--query-gpu=index,uuid": "0, GPU-a\n1, GPU-b\n2, GPU-c\n",
        "--query-compute-apps=gpu_uuid": "GPU-b\n",
    }

    def smi(command: list[str], **_: Any) -> Any:
        return SimpleNamespace(stdout=answers[command[1]])

    monkeypatch.setattr(subprocess, "run", smi)
    assert gpu_info.get_gpus(2, 0) == "0,2"
    assert gpu_info.get_gpus(1, 1, format=gpu_info.AS_LIST) == ["2"]
    assert gpu_info.get_gpus(1, 2, format=gpu_info.AS_LIST) == ["0"]
    assert set(gpu_info.get_gpus(2, format=gpu_info.AS_LIST)) == {"0", "2"}


def test_files_in_a_path(tmp_path: Path) -> None:
    (tmp_path / "program").touch()
    assert util.find_in_path(f"/no-such{os.pathsep}{tmp_path}", "program") == str(tmp_path / "program")
    assert util.find_in_path(str(tmp_path), "other") is False
