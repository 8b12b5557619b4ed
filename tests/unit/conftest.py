"""Fixtures that several unit tests share."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

CLOSED_WITHIN = 5.0  # seconds: a thread that has just ended may still hold its last descriptor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of text and, two folders below, a file of bytes."""
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "deep" / "er" / "b.bin").write_bytes(b"\x00\xff")
    return source


@pytest.fixture
def nothing_open() -> Iterator[None]:
    """After the test: no descriptor and no thread of a node is left."""
    before = psutil.Process().num_fds()
    yield
    deadline = time.monotonic() + CLOSED_WITHIN
    pause = threading.Event()
    while left := _left(before):
        assert time.monotonic() < deadline, left
        pause.wait(0.01)


def _left(before: int) -> str:
    names = [thread.name for thread in threading.enumerate()]
    feeds = [name for name in names if name.startswith(("emberflow-feed", "emberflow-acceptor"))]
    more = psutil.Process().num_fds() - before
    return f"threads {feeds}, {more} more descriptors" if feeds or more > 0 else ""
