"""Rows that feeding tasks bring to a node of a live cluster: spooled, with the columns that their name had before."""

import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from emberflow._feed.arrays import RESERVED
from emberflow._feed.spool import SpoolFile, SpoolWriter
from emberflow._node.node_spec import LiveSpec, NodeSpec
from emberflow.errors import DataError


class SpoolSettings:
    """Where and how large the spools of this node may be."""

    def __init__(self, spec: NodeSpec) -> None:
        live = spec.live or LiveSpec()
        self._folder = Path(live.spool_dir or spec.folder)
        self._limit = live.spool_limit
        self._encrypts = spec.plan.encrypts_files

    def writer(self) -> SpoolWriter:
        """Return the writer of a new spool."""
        return SpoolWriter(self._folder, limit=self._limit, encrypts=self._encrypts)


class KnownColumns:
    """The columns of each name, which must stay the same as long as the cluster lives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[str, str], ...]] = {}

    def check(self, name: str, schema: Any) -> None:
        """Raise an error if your function was given rows of this name with other columns before."""
        found = _columns(schema)
        with self._lock:
            known = self._known.get(name, found)
        if found != known:
            raise DataError(
                f"The columns of {name!r} must stay the same as long as the cluster lives. "
                f"Received: {_shown(found)}; before: {_shown(known)}.",
                fix="Select and cast the columns so that they are as before, or start another cluster.",
            )

    def settle(self, name: str, schema: Any) -> None:
        """Remember the columns of rows that become visible: those of a feeding job that failed do not bind."""
        self.check(name, schema)
        with self._lock:
            self._known.setdefault(name, _columns(schema))


def _columns(schema: Any) -> tuple[tuple[str, str], ...]:
    return tuple((each.name, str(each.type)) for each in schema if not each.name.startswith(RESERVED))


def _shown(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in columns)


def finished(writers: Mapping[str, SpoolWriter]) -> dict[str, SpoolFile]:
    """Finish all spools; if one cannot be, none is left open."""
    with ExitStack() as held:
        spools: dict[str, SpoolFile] = {}
        for name, writer in writers.items():
            spools[name] = writer.finish()
            held.callback(spools[name].close)
        held.pop_all()
    return spools
