"""An HDFS that is away for a while: its calls are made again until it answers and takes writes, for a bounded time.

That is so while a NameNode starts again, in its safe mode, during a failover, and without a DataNode. The first
contact of a process with an address fails within seconds instead, since the address may be wrong; unless Hadoop's own
settings name it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from emberflow._plan import deadlines
from emberflow.storage.failures import FAILURES, Failure, failure_of

Result = TypeVar("Result")

_log = logging.getLogger(__name__)
_waits: ContextVar[bool] = ContextVar("waits", default=True)
_known: set[str] = set()  # addresses at which there is an HDFS
_away: set[str] = set()  # addresses of which a log has a line


def outlast(address: str, call: Callable[[], Result]) -> Result:
    """Make a call; again while it fails for a reason that may pass."""
    over: float | None = None
    while True:
        try:
            result = call()
        except Exception as error:
            failure = failure_of(error)
            over = over or time.monotonic() + deadlines.OUTAGE_TIMEOUT
            if not _may_wait(address, failure) or time.monotonic() >= over:
                raise
        else:
            expect(address)
            _away.discard(address)
            return result
        threading.Event().wait(deadlines.OUTAGE_POLL)


def expect(address: str) -> None:
    """Note that there is an HDFS at this address."""
    _known.add(address)


@contextmanager
def not_waiting() -> Iterator[None]:
    """Make each call of the block once: what cleans up after an outage must not wait for its end again."""
    token = _waits.set(False)
    try:
        yield
    finally:
        _waits.reset(token)


def _may_wait(address: str, failure: Failure | None) -> bool:
    if failure is not FAILURES["unreachable"]:
        expect(address)  # something refused the call
    if failure is None or not failure.may_pass or address not in _known or not _waits.get():
        return False
    if address not in _away:
        _away.add(address)
        _log.warning("%s: %s. Waiting for up to %.0f s.", address, failure.problem, deadlines.OUTAGE_TIMEOUT)
    return True
