"""One attempt of a live cluster: whoever waits for its nodes is told how they end."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from emberflow._driver.console import Console
from emberflow._driver.events import JobRows
from emberflow._driver.hub import Hub
from emberflow._driver.live_attempt import LiveAttempt
from emberflow._driver.supervisor import AttemptParts
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import NodeReady
from emberflow._task.metric_log import MetricLog
from emberflow.errors import EmberflowError, NodeLostError
from tests.unit.nodes import KEY, WITHIN, FakeJob, FakeNode, plan_of


class Told:
    """What an attempt tells."""

    def __init__(self) -> None:
        self.failed: Future[EmberflowError] = Future()
        self.returned: Future[int] = Future()

    def on_up(self, endpoints: list[dict[str, str]]) -> None: ...

    def on_message(self, rank: int, message: Message) -> None: ...

    def on_returned(self, rank: int) -> None:
        self.returned.set_result(rank)

    def on_failed(self, error: EmberflowError) -> None:
        if not self.failed.done():  # it may be told twice
            self.failed.set_result(error)


@contextlib.contextmanager
def up(workers: int, **plan: Any) -> "Iterator[tuple[Told, list[FakeNode], Future[Any]]]":
    """Bring an attempt up; yield what it tells, its nodes and its result."""
    told = Told()
    with contextlib.closing(Hub("127.0.0.1", KEY, workers)) as hub, ThreadPoolExecutor(1) as pool:
        planned = plan_of(workers, is_live=True, **plan)
        job: Any = FakeJob(hub.events)
        console = Console(planned.nodes, verbose=False)
        parts = AttemptParts(
            plan=planned,
            key=KEY,
            hub=hub,
            job=job,
            console=console,
            metrics=MetricLog(),
            on_quit=lambda: None,
        )
        result = pool.submit(LiveAttempt(parts, told).run)
        nodes = [FakeNode(hub, rank) for rank in range(workers)]
        for node in nodes:
            node.say(NodeReady())
        rows = [{"rank": node.rank, "part": 0, "outcome": "", "value": b""} for node in nodes]
        hub.events.put(JobRows(rows))
        try:
            yield told, nodes, result
        finally:
            for node in nodes:
                node.close()
            result.exception(WITHIN)


@pytest.mark.parametrize("workers", [1, 2])
def test_calls_are_told_of_a_lost_node_also_when_no_other_is_left(workers: int) -> None:
    with up(workers) as (told, nodes, result):
        nodes[-1].end("lost", problem="it was killed by SIGKILL")
        error = told.failed.result(WITHIN)
        assert isinstance(error, NodeLostError)
        assert error.rank == workers - 1
        for node in nodes[:-1]:
            node.hear_quit()
            node.close()
        assert result.exception(WITHIN) is not None


def test_calls_are_told_of_a_worker_that_the_cluster_goes_on_without() -> None:
    with up(3, strategy="periodic") as (told, nodes, result):
        nodes[2].end("lost", problem="it was killed by SIGKILL", is_tolerable=True)
        assert told.returned.result(WITHIN) == 2
        assert not told.failed.done()
        for node in nodes[:2]:
            node.end()
        assert len(result.result(WITHIN)) == 3
