"""Which process runs which test when pytest runs with several: each process starts few clusters.

pytest-xdist's own schedulers do not know that a change from one kind of cluster to another takes ten seconds.
Here a process gets the tests of one file and one kind of cluster at a time, and stays with its kind while there
are any. Tests marked `alone` run last, in one process, when all other processes and their clusters have ended.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

ALONE = "alone"
UNIT = "unit"
GROUPS = "groups.json"


def write_groups(folder: Path, groups: dict[str, str]) -> None:
    """Tell the process that schedules to which group each test belongs: it collects no tests itself."""
    mine = folder / f"{GROUPS}.{os.getpid()}"
    mine.write_text(json.dumps(groups))
    mine.replace(folder / GROUPS)


class ClusterScheduling(LoadScopeScheduling):
    """Assigns tests by file and group; a group is a kind of cluster, `hadoop`, no cluster, `unit` or `alone`."""

    def __init__(
        self, config: "pytest.Config", log: "Producer", folder: Path, *, unit_first: bool = False
    ) -> None:
        """Schedule; with `unit_first` only the first process begins with a cluster, which takes long this time."""
        super().__init__(config, log)
        self._unit_first = unit_first
        config.option.loadscopereorder = False  # our order is the one of the collection
        self._folder = folder
        self._groups: dict[str, str] = {}

    def schedule(self) -> None:
        """Begin, as soon as all processes have collected."""
        if not self._groups:
            self._groups = json.loads((self._folder / GROUPS).read_text())
        super().schedule()

    def remove_node(self, node: "WorkerController") -> str | None:
        """Forget a process that has ended; the last one may have waited for it."""
        crashed = super().remove_node(node)
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _split_scope(self, nodeid: str) -> str:
        return f"{self._groups[nodeid]} {nodeid.split('::', maxsplit=1)[0]}"

    def _assign_work_unit(self, node: "WorkerController") -> None:
        scope = self._next_scope(node)
        others = [other for other in self.nodes if other is not node]
        if _group(scope) == ALONE and others:
            if not all(other.shutting_down for other in others):
                node.shutdown()
            return  # the last process gets it as soon as the others have ended
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _next_scope(self, node: "WorkerController") -> str:
        """Return the first scope of the group that the process is at, else of one that no other is at."""
        at = {other: _group(next(reversed(scopes))) for other, scopes in self.assigned_work.items() if scopes}
        processes = Counter(at.values())
        unit_first = self._unit_first and node not in at and node is not self.nodes[0]

        def rank(scope: str) -> tuple[bool, bool, bool, int]:
            group = _group(scope)
            return group == ALONE, group != at.get(node), (group == UNIT) != unit_first, processes[group]

        return min(self.workqueue, key=rank)


def _group(scope: str) -> str:
    return scope.split(" ", maxsplit=1)[0]
