"""A rank that dies, hangs or raises: what the others see, and when."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tensorflow.parallel_crew import RANKS, Crew

TIMEOUT = 2.0
# All gradients at once over sockets; each through memory, while others are still computed
WAYS = pytest.mark.parametrize("way", [{}, {"bucket_bytes": 100, "shares_memory": True}])


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    crew = Crew(tmp_path_factory.mktemp("ranks"))
    yield crew
    crew.close()


def start_training(crew: Crew, transport: str) -> None:
    """Return when all ranks train."""
    folder = crew.folder / f"{transport}-{time.monotonic_ns()}"
    folder.mkdir()
    for rank in range(RANKS[transport]):
        crew.tell(rank, do="scene", name="train_for_ever", transport=transport, folder=str(folder))
    await_files([folder / f"running-{rank}" for rank in range(RANKS[transport])])


def await_files(paths: list[Path]) -> None:
    deadline = time.monotonic() + 60
    pause = threading.Event()
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline
        pause.wait(0.01)


@pytest.mark.fault
@WAYS
def test_a_stuck_rank_is_named_after_the_timeout_and_may_come_back(crew: Crew, way: dict[str, Any]) -> None:
    crew.connect("ring3", TIMEOUT, **way)
    start_training(crew, "ring3")
    start = time.time()
    crew.signal(2, signal.SIGSTOP)
    try:
        seen = [crew.answer(rank) for rank in range(2)]
    finally:
        crew.signal(2, signal.SIGCONT)
    for kind, text, moment in seen:
        assert kind == "PeerError"
        assert text.startswith("Rank 2 "), text
        assert TIMEOUT - 0.5 < moment - start < TIMEOUT + 3
    assert crew.answer(2)[0] == "PeerError"


@pytest.mark.fault
def test_an_error_on_one_rank_ends_the_others_at_once(crew: Crew) -> None:
    crew.connect("ring2", bucket_bytes=100)
    first, second = crew.ask(2, do="scene", name="a_rank_raises", transport="ring2", folder="")
    assert first.startswith("PeerError: Rank 1 has finished already")
    assert second.startswith("InterruptedError: by the user's own callback")


@pytest.mark.fault
def test_a_step_that_fails_in_the_middle_of_its_exchange_ends_the_others(crew: Crew) -> None:
    crew.connect("ring2", bucket_bytes=100)
    first, second = crew.ask(2, do="scene", name="a_step_fails_in_the_middle", transport="ring2", folder="")
    assert first.startswith("PeerError: Rank 1 has finished already"), first
    assert second.startswith("InvalidArgumentError"), second


def killed(crew: Crew, transport: str, rank: int) -> tuple[list[Any], float]:
    """Kill a rank in training; return what the others saw, and the longest time until then."""
    start_training(crew, transport)
    start = time.time()
    os.kill(crew.processes[rank].pid, signal.SIGKILL)
    seen = [crew.answer(other) for other in range(RANKS[transport]) if other != rank]
    return seen, max(moment for _, _, moment in seen) - start


@pytest.mark.alone
@pytest.mark.fault
def test_a_killed_rank_is_named_by_all_within_a_second(crew: Crew) -> None:
    crew.connect("ring3", bucket_bytes=100, shares_memory=True)
    seen, seconds = killed(crew, "ring3", rank=2)
    assert seconds < 1
    for kind, text, _ in seen:
        assert kind == "PeerError"
        assert text.startswith("Rank 2 "), text


@pytest.mark.fault
def test_a_killed_rank_is_a_peer_error_with_collectives_too(crew: Crew) -> None:
    seen, seconds = killed(crew, "collectives", rank=1)
    assert seconds < 20  # at once where a receive is in flight, else when TensorFlow's health check looks
    assert seen[0][0] == "PeerError", seen
