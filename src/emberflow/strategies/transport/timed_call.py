"""Calls that may never come back, made on a thread of their own so that there is a limit to waiting for them."""

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from emberflow.errors import PeerError

Value = TypeVar("Value")
Calls = queue.SimpleQueue[Callable[[], Any] | None]
Answers = queue.SimpleQueue[tuple[Any, BaseException | None]]


class Patience:
    """Makes one call after the other, and waits for each as long as its limit says.

    A context manager: its thread ends with the block, or as soon as the call that it hangs in comes back.

    Args:
        limit: Seconds for one call.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._calls: Calls | None = None
        self._answers: Answers = queue.SimpleQueue()

    def __enter__(self) -> "Patience":
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def wait_for(self, call: Callable[[], Value], who: str) -> Value:
        """Return what the call returns, or raise what it raises.

        Args:
            call: What to do.
            who: Whose answer it waits for, for the error.
        """
        if self._calls is None:
            self._calls, self._answers = queue.SimpleQueue(), queue.SimpleQueue()
            pair = (self._calls, self._answers)
            threading.Thread(target=_work, args=pair, name="emberflow-patience", daemon=True).start()
        self._calls.put(call)
        try:
            value, error = self._answers.get(timeout=self._limit)
        except queue.Empty:
            self._let_go()  # an answer that comes after all must not be taken for the next one
            raise PeerError(
                f"A step must be done within {self._limit:g} s (twice exchange_timeout). Received: none of {who}.",
                fix="Look at their logs: their rows may hang. Raise exchange_timeout if a step takes that long.",
            ) from None
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def _let_go(self) -> None:
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _work(calls: Calls, answers: Answers) -> None:
    while (call := calls.get()) is not None:
        try:
            answers.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            answers.put((None, error))
