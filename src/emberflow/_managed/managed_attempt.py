"""One attempt of a run without Spark: its tasks come by themselves, and it is over when the last node has ended."""

from typing import Any

from emberflow._driver.attempt import Attempt, AttemptState
from emberflow._driver.events import JoinedAgain


class ManagedAttempt(Attempt):
    """Supervises tasks that a cluster manager has started; it starts only that of the chief itself."""

    def _is_complete(self) -> bool:
        return len(self._failures.outcomes()) == len(self._plan.nodes) and not self._failures.failures

    def _is_quiet(self) -> bool:
        return self._are_all_gone()

    def _is_explained(self) -> bool:
        return True  # nobody will say more

    def _would_repeat_task(self) -> bool:
        return False

    def _on_joined_again(self, event: JoinedAgain) -> None:
        """A task that was started again finds the run that it belonged to before; it tries again later."""

    def _show_executors(self) -> None:
        if self._state is AttemptState.STARTING:
            self._console.status(f"tasks that have joined: {len(self._hosts)} of {len(self._plan.nodes)}")

    def _result(self) -> list[Any]:
        if self._job_error is not None:
            raise self._job_error
        return []
