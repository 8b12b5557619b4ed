"""The last lines of an executor that YARN has ended, from its NodeManager."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from emberflow._driver import yarn
from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.yarn_logs import log_of_lost_executor
from emberflow.errors import NodeLostError

REASON = (
    "Container killed by YARN for exceeding physical memory limits. 3.5 GB of 1.5 GB physical memory used."
)
PROBLEM = f"Worker 1 on a was lost: its executor has ended. {REASON} Consider boosting."
ANSWER = """Container: {0} on a:1
LogAggregationType: LOCAL
===
LogType:stderr
LogLength:{1}
LogContents:
{2}End of LogType:stderr.
***
"""


class NodeManager(BaseHTTPRequestHandler):
    """Answers as a NodeManager does, for containers whose name ends in 1."""

    asked: list[str]
    log = ""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        container = self.path.split("/")[5]
        is_known = container.endswith("1")
        self.send_response(200 if is_known else 404)
        self.end_headers()
        if is_known:
            self.wfile.write(ANSWER.format(container, len(self.log), self.log).encode())

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


@pytest.fixture
def node_manager() -> Iterator[ThreadingHTTPServer]:
    NodeManager.asked = []
    NodeManager.log = "".join(f"line {number}\n" for number in range(40))
    with ThreadingHTTPServer(("127.0.0.1", 0), NodeManager) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def option(value: Any) -> Any:
    """Return Scala's Option."""
    return SimpleNamespace(isDefined=lambda: value is not None, get=lambda: value)


def spark_with(*executors: tuple[str | None, str]) -> Any:
    """Return a session whose records have these executors: why each was removed, and where its log is."""
    summaries = [
        SimpleNamespace(
            removeReason=lambda reason=reason: option(reason),
            executorLogs=lambda page=page: SimpleNamespace(get=lambda _: option(page or None)),
        )
        for reason, page in executors
    ]
    listed = SimpleNamespace(size=lambda: len(summaries), apply=summaries.__getitem__)
    context = SimpleNamespace(statusStore=lambda: SimpleNamespace(executorList=lambda _: listed))
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context)))


def page_of(server: ThreadingHTTPServer, container: str = "container_7_0001_01_000001") -> str:
    return f"http://127.0.0.1:{server.server_port}/node/containerlogs/{container}/me/stderr?start=-4096"


def test_the_end_of_the_lost_executors_log_is_read_and_no_other(node_manager: ThreadingHTTPServer) -> None:
    other = page_of(node_manager, "container_7_0001_01_000002")
    spark = spark_with(
        (None, other), ("", other), ("idle", other), (f"{REASON}\nmore", page_of(node_manager))
    )
    lines = log_of_lost_executor(spark, PROBLEM).splitlines()
    assert lines == [f"line {number}" for number in range(25, 40)]
    (asked,) = NodeManager.asked
    assert asked == "/ws/v1/node/containers/container_7_0001_01_000001/logs/stderr?size=-4000"


@pytest.mark.parametrize("page", ["", "http://history/logs/1", "file:///etc/passwd", "http://127.0.0.1:1/x"])
def test_a_log_that_is_elsewhere_is_left_out(page: str) -> None:
    assert log_of_lost_executor(spark_with((REASON, page)), PROBLEM) == ""


def test_a_log_that_cannot_be_read_hides_no_error(node_manager: ThreadingHTTPServer) -> None:
    forgotten = page_of(node_manager, "container_7_0001_01_000002")
    assert log_of_lost_executor(spark_with((REASON, forgotten)), PROBLEM) == ""
    closed = "http://127.0.0.1:1/node/containerlogs/container_7_0001_01_000001/me/stderr"
    assert log_of_lost_executor(spark_with((REASON, closed)), PROBLEM) == ""
    assert log_of_lost_executor(SimpleNamespace(), PROBLEM) == ""  # type: ignore[arg-type]


def test_what_a_node_said_itself_is_not_replaced(
    node_manager: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yarn, "_state", lambda *_: "application_1_0001 is RUNNING.")
    spark = spark_with((REASON, page_of(node_manager)))
    facts = ClusterFacts(is_connect=False, master="yarn", application="application_1_0001")
    silent, spoken = NodeLostError(PROBLEM, fix="Look."), NodeLostError(PROBLEM, fix="Look.", log_tail="mine")
    for error in (silent, spoken):
        yarn.add_application(error, spark, facts)
    assert "\nLast lines of its log:\nline 25\n" in str(silent)
    assert spoken.log_tail == "mine"
