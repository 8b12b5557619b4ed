"""What `--data` names: files that the nodes read, or sources that the user's own file defines."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from emberflow._node.program_file import ProgramFile
from emberflow.errors import ConfigError

TRAIN = "train"
_NAMED = re.compile(r"(\w+)=(.+)")


def sources_of(options: Sequence[str]) -> dict[str, Any]:
    """Return the sources by name, as `data` of ``ef.run`` takes them."""
    sources: dict[str, Any] = {}
    for option in options:
        for name, source in _sources(option).items():
            if name in sources:
                raise ConfigError(
                    f"Each source needs a name of its own. Received: --data {option}, and {name!r} before.",
                    fix="Write --data NAME=PATH with another NAME.",
                )
            sources[name] = source
    return sources


def _sources(option: str) -> Mapping[str, Any]:
    if ProgramFile.is_named_by(option):
        found = ProgramFile.of(option).load()
        found = found() if callable(found) and not hasattr(type(found), "fragments") else found
        return found if isinstance(found, Mapping) else {TRAIN: found}
    named = _NAMED.fullmatch(option)
    name, path = (named[1], named[2]) if named else (TRAIN, option)
    if not path:
        raise ConfigError(
            f"--data must be NAME=PATH or FILE.py:NAME. Received: {option!r}.",
            fix="Write --data train=/data/train.parquet.",
        )
    if ".tfrecord" in path:
        from emberflow.tfrecord.tfrecords import TFRecords

        return {name: TFRecords(path)}
    from emberflow._feed.parquet import Parquet

    return {name: Parquet(path)}
