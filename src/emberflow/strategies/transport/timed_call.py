"""Calls that may never return, made on a thread of their own so that there is a limit to waiting for them."""

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from emberflow.errors import PeerError

Value = TypeVar("Value")
Calls = queue.SimpleQueue[Callable[[], Any] | None]
Results = queue.SimpleQueue[tuple[Any, BaseException | None]]


class TimedCaller:
    """Makes one call after the other, with a time limit for each.

    A context manager: its thread ends with the block, or as soon as the call that blocks it returns.

    Args:
        limit: Seconds for one call.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._calls: Calls | None = None
        self._results: Results = queue.SimpleQueue()

    def __enter__(self) -> "TimedCaller":
        return self

    def __exit__(self, *_: object) -> None:
        self._release_thread()

    def call(self, function: Callable[[], Value], waits_for: str) -> Value:
        """Return what the function returns, or raise what it raises.

        Args:
            function: What to call.
            waits_for: The nodes whose answer it waits for, for the error.
        """
        if self._calls is None:
            self._calls, self._results = queue.SimpleQueue(), queue.SimpleQueue()
            pair = (self._calls, self._results)
            threading.Thread(target=_make_calls, args=pair, name="emberflow-timed-call", daemon=True).start()
        self._calls.put(function)
        try:
            value, error = self._results.get(timeout=self._limit)
        except queue.Empty:
            self._release_thread()  # a late result must not be taken for that of the next call
            raise PeerError(
                f"A step must be done within {self._limit:g} s (twice exchange_timeout). "
                f"Received: no answer of {waits_for}.",
                fix="Look at their logs: reading their rows may be blocked. Raise exchange_timeout if a step takes "
                "that long.",
            ) from None
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def _release_thread(self) -> None:
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _make_calls(calls: Calls, results: Results) -> None:
    while (function := calls.get()) is not None:
        try:
            results.put((function(), None))
        except BaseException as error:  # noqa: BLE001 - raised by `call`
            results.put((None, error))
