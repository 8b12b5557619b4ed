"""Where the lines of a node go: the executor's log, the driver, the tail of an error."""

import pytest

from emberflow._plan.plan import LogCopy
from emberflow._task.node_log import TAIL_LINES, NodeLog

NOISE = (
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    b"I0000 00:00:1794795688.839435   25790 cudart_stub.cc:31] Could not find cuda drivers on your machine.\n"
    b"E0000 00:00:1794795701.580313   25790 cuda_platform.cc:52] failed call to cuInit: UNKNOWN ERROR (303)\n"
    b"W0000 00:00:1794795701.580313   25790 computation_placer.cc:177] computation placer already registered.\n"
)


@pytest.mark.parametrize(
    ("copy", "copied"),
    [("all", NOISE + b"hello\nworld"), ("no_noise", b"hello\nworld\n"), ("none", b"")],
)
def test_a_line_is_forwarded_once_and_copied_where_that_is_a_log_of_its_own(
    copy: LogCopy, copied: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    forwarded: list[str] = []
    log = NodeLog(copy, forwarded.append)
    for data in (NOISE[:100], NOISE[100:], b"hel", b"lo\nworld"):
        log.add(data)
    log.end()
    assert forwarded == ["hello", "world"]
    assert capfdbinary.readouterr().err == copied


def test_the_tail_of_an_error_has_the_noise_too() -> None:
    log = NodeLog("none")
    log.add(NOISE + b"hello\nlast words")
    assert log.tail(with_noise=True) == NOISE.decode() + "hello\nlast words"
    assert log.tail(with_noise=False) == "hello\nlast words"


def test_the_tail_is_bounded() -> None:
    log = NodeLog("none")
    log.add(b"x\n" * 1000)
    assert log.tail(with_noise=True).split("\n") == ["x"] * TAIL_LINES
