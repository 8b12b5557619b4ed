"""The circles that a rank is in: all ranks; where ranks share hosts, those of its host and the first of each."""

import logging
import os
from collections.abc import Sequence

import numpy as np

from emberflow.strategies.transport.circle import Circle
from emberflow.strategies.transport.host_memory import share_memory
from emberflow.strategies.transport.host_sum import PART, PARTS, HostSum
from emberflow.strategies.transport.ring_joining import Place
from emberflow.strategies.transport.ring_link import RingLink

log = logging.getLogger("emberflow")

_ALL = 0


def members_of(hosts: Sequence[str]) -> list[list[int]]:
    """Return the ranks of each circle: of all, then of each host, last the first ones of all hosts.

    Where all ranks are on one host, or all on hosts of their own, the first circle is enough.

    >>> members_of(["a", "b", "a"])
    [[0, 1, 2], [0, 2], [1], [0, 1]]
    >>> members_of(["a", "a"]), members_of(["a", "b"])
    ([[0, 1]], [[0, 1]])
    """
    everyone = list(range(len(hosts)))
    names = list(dict.fromkeys(hosts))
    if len(names) in (1, len(hosts)):
        return [everyone]
    groups = [[rank for rank in everyone if hosts[rank] == name] for name in names]
    return [everyone, *groups, [group[0] for group in groups]]


class Circles:
    """The circles of one rank, while their links are added.

    Args:
        rank: Our number.
        hosts: The host of each rank.
    """

    def __init__(self, rank: int, hosts: Sequence[str]) -> None:
        self.members = members_of(hosts)
        self._rank = rank
        self._hosts = len(set(hosts))
        self._ranks_here = list(hosts).count(hosts[rank])
        self._links: dict[int, list[RingLink]] = {}

    def add(self, place: Place, link: RingLink) -> None:
        """Add the link at one place, in the order of the places."""
        self._links.setdefault(place.circle, []).append(link)

    @property
    def all(self) -> Circle:
        """The circle of all ranks."""
        return self._circle(_ALL)

    def have_cores_to_spare(self) -> bool:
        """Whether each host has more cores than ranks, so that a thread that exchanges takes no rank's core."""
        lacking = np.array([len(os.sched_getaffinity(0)) <= self._ranks_here], np.int64)
        self.all.all_reduce(lacking)
        return not lacking[0]

    def host_sum(self) -> HostSum | None:
        """Let the ranks of each host share memory; None where no host has several, or one of the ranks cannot."""
        ranks = len(self.members[_ALL])
        if self._hosts == ranks:
            return None
        leaders = len(self.members) - 1
        host = self._circle(next(number for number in range(len(self.members)) if self._is_own(number)))
        memory = share_memory(host, PART * PARTS)
        failures = np.array([memory is None], np.int64)
        self.all.all_reduce(failures)
        if memory is None or failures[0]:
            log.warning("Ranks of one host cannot share memory here: they exchange over sockets.")
            return None
        leads = self._hosts > 1 and self._rank in self.members[leaders]
        return HostSum(host, memory, self._circle(leaders) if leads else None, self._hosts)

    def _is_own(self, number: int) -> bool:
        """Whether a circle is that of our host."""
        is_host = number == _ALL if self._hosts == 1 else _ALL < number < len(self.members) - 1
        return is_host and self._rank in self.members[number]

    def _circle(self, number: int) -> Circle:
        return Circle(self.members[number], self._rank, self._links.get(number, []))
