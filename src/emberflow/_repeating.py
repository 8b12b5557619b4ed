"""A call repeated at intervals, on a thread of its own, for the length of a block."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(
    call: Callable[[], object], interval: float, thread: str, *, at_end: bool = False
) -> Iterator[None]:
    """Call a function at intervals until the block is left; an error of it ends the calls, and never the block.

    Args:
        call: The function.
        interval: Seconds between two calls, and before the first.
        thread: The thread's name.
        at_end: Whether it is called once more when the block is left.
    """
    over = threading.Event()

    def run() -> None:
        while not over.wait(interval):
            call()
        if at_end:
            call()

    running = threading.Thread(target=run, name=thread, daemon=True)
    running.start()
    try:
        yield
    finally:
        over.set()
        running.join()
