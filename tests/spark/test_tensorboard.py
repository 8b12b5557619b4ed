"""TensorBoard beside the chief: it answers while the run goes on, and is gone afterwards."""

import dataclasses
import json
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psutil
import pytest

import emberflow as ef
from emberflow._task.node_setup import check_here
from emberflow.errors import EmberflowError, NodeFailedError
from tests.spark.watching import START, await_begun, await_file, await_gone, begin, start_run
from tests.unit.nodes import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


def training(notes: Path, logs: Path) -> Callable[[Any], Any]:
    """Return a program that writes an event file and then waits to be told how to end."""

    def train(ctx: Any) -> str:
        if ctx.is_chief:
            write_event(logs / "train")
        begin(notes, ctx.rank)
        if await_file(notes / "end").read_text() == "badly":
            raise ValueError("told to")
        return "done"

    return train


def write_event(folder: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    value = Summary.Value(tag="loss", simple_value=0.25)
    writer = EventFileWriter(str(folder))
    writer.add_event(Event(step=3, wall_time=time.time(), summary=Summary(value=[value])))
    writer.close()


def await_text(read: Callable[[], str], pattern: str, timeout: float = START) -> str:
    """Return what matches in the text that `read` brings piece by piece."""
    deadline = time.monotonic() + timeout
    pause, text = threading.Event(), ""
    while not (found := re.search(pattern, text)):
        assert time.monotonic() < deadline, f"{pattern} is not in: {text}"
        pause.wait(0.05)
        text += read()
    return found[1]


def listener(url: str) -> psutil.Process:
    """Return the process that listens there."""
    port = urlsplit(url).port
    for process in psutil.process_iter():
        try:
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    assert connection.laddr.ip == "127.0.0.1"
                    return process
        except psutil.Error:
            continue
    raise AssertionError(f"nobody listens at {url}")


@pytest.mark.parametrize("end", ["well", pytest.param("badly", marks=pytest.mark.full)])
def test_tensorboard_answers_during_the_run_and_not_after(
    spark_cluster: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    logs = tmp_path / "logs"
    ports = {"port_range": "20000-29999"} if end == "well" else {}
    run = start_run(spark_cluster, training(tmp_path, logs), tensorboard=str(logs), verbose=True, **ports)
    await_begun(tmp_path, 0)
    url = await_text(lambda: capsys.readouterr().err, r"TensorBoard: (http\S+)")
    assert urlsplit(url).hostname in ("127.0.0.1", "localhost")
    assert not ports or 20000 <= (urlsplit(url).port or 0) <= 29999
    with urllib.request.urlopen(url, timeout=START) as page:
        assert page.status == 200
        assert b"TensorBoard" in page.read()
    await_text(lambda: json.dumps(runs_at(url)), '"(train)"')
    process = listener(url)

    (tmp_path / "end").write_text(end)
    if end == "well":
        assert run.result(timeout=START).tensorboard_url == url
    else:
        assert isinstance(run.exception(timeout=START), NodeFailedError)
    await_gone(process)
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


def runs_at(url: str) -> Any:
    with urllib.request.urlopen(f"{url}data/runs", timeout=START) as answer:
        return json.load(answer)


def test_without_a_log_folder_there_is_no_tensorboard(spark_cluster: "SparkSession") -> None:
    assert ef.run(lambda _: 1, workers=1, spark=spark_cluster, verbose=False).tensorboard_url is None


def test_a_python_without_tensorboard_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = dataclasses.replace(plan_of(2), tensorboard=("logs", "127.0.0.1"))
    check_here(plan)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(EmberflowError, match="has no module tensorboard") as caught:
        check_here(plan)
    assert "emberflow[tensorboard]" in caught.value.fix
