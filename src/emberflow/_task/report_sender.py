"""What a task of `ef.run_parallel` reports to the driver, which only listens: the task waits for none of it."""

import queue
import threading
from contextlib import suppress

from emberflow._plan import deadlines
from emberflow._protocol.codec import Message
from emberflow._protocol.frames import send
from emberflow._protocol.outcome import Outcome
from emberflow._task.driver_connection import dial, is_admitted
from emberflow._task.task_spec import TaskSpec
from emberflow.errors import EmberflowError

WAITING = 200  # messages, of up to 64 kB, that wait for the driver; of more the new ones are dropped


class ReportSender:
    """Dials and sends on a thread of its own. Where the driver does not answer, the task's rows tell how it ended.

    Args:
        spec: What the task was sent.
        task: Its number.
        host: Where it runs.
        tasks: How many tasks report to the same driver.
    """

    def __init__(self, spec: TaskSpec, task: int, host: str, tasks: int) -> None:
        self.tasks = tasks
        self._spec = spec
        self._task = task
        self._host = host
        self._waiting: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="emberflow-reports", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        """Have a message sent; does not wait."""
        if not self._is_over and (self._waiting.qsize() < WAITING or isinstance(message, Outcome)):
            self._waiting.put(message)

    def close(self) -> None:
        """Give the last messages a moment."""
        self._waiting.put(None)
        self._thread.join(deadlines.REPORTS_END_TIMEOUT)

    def _run(self) -> None:
        try:
            with suppress(OSError, EmberflowError):
                self._send_all()
        finally:
            self._is_over = True

    def _send_all(self) -> None:
        plan = self._spec.plan
        if plan.driver_address is None:
            return
        timeout = deadlines.DIAL_TIMEOUT
        with dial(plan.driver_address, self._spec.key, self._task, self._host, timeout) as driver:
            if not is_admitted(driver, plan.start_timeout):
                return  # the driver listens to another task of this number, or to as many as it can
            driver.settimeout(deadlines.SEND_TIMEOUT)
            while (message := self._waiting.get()) is not None:
                send(driver, message)
