"""Descriptions from YAML, and changes to single fields of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from emberflow.deploy.fields import build
from emberflow.deploy.job import Job
from emberflow.errors import ConfigError

_OPEN_NAMES = ("env", "spark_conf")  # their entries have names of their own, with dots in them


def load(path: str | Path, changes: Sequence[str] = ()) -> Job:
    """Return the job that a YAML file describes.

    Args:
        path: A local file.
        changes: Fields that are set differently, as ``roles.worker.replicas=8``; ``=null`` removes one.
    """
    fix = "Name a file, or write one: emberflow render --example > job.yaml"
    return job_of(parse(read_text(path, "description", fix), str(path)), changes)


def read_text(path: str | Path, what: str, fix: str) -> str:
    """Return the text of a file; where there is none, the error says what it was to be."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"The {what} cannot be read: {error}. Received: path={str(path)!r}.", fix=fix
        ) from error


def job_of(values: Any, changes: Sequence[str] = ()) -> Job:
    """Return the job of plain values, as YAML has them, with these changes."""
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"A description has fields with values. Received: {values!r}.",
            fix="See `emberflow render --example`.",
        )
    values = dict(values)
    for change in changes:
        values = _changed(values, change)
    job: Job = build(Job, values)
    return job


def parse(text: str, source: str) -> Any:
    """Return the values of the one document of a YAML text."""
    documents = parse_all(text, source)
    if len(documents) != 1:
        raise ConfigError(
            f"A description is one YAML document. Received: {len(documents)} in {source}.",
            fix="Write one file for each job.",
        )
    return documents[0]


def parse_all(text: str, source: str) -> list[Any]:
    """Return the values of all documents of a YAML text."""
    try:
        return [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} is not YAML: {error}", fix="Correct the line that it names.") from error


def _changed(values: dict[str, Any], change: str) -> dict[str, Any]:
    path, equals, text = change.partition("=")
    if not equals or not path:
        raise ConfigError(
            f"A change is a field and its value. Received: --set {change}.",
            fix="Write --set roles.worker.replicas=8, for example.",
        )
    first, dot, rest = path.partition(".")
    names = [first, rest] if dot and first in _OPEN_NAMES else path.split(".")
    return _with(values, names, parse_value(text), path)


def parse_value(text: str) -> Any:
    """Return the value of a text in YAML's notation.

    >>> parse_value("8"), parse_value("[a, b]"), parse_value("null"), parse_value("./run.key")
    (8, ['a', 'b'], None, './run.key')
    """
    return yaml.safe_load(text) if text else ""


def _with(values: dict[str, Any], names: list[str], value: Any, path: str) -> dict[str, Any]:
    name, *rest = names
    changed = dict(values)
    if rest:
        part = values.get(name) or {}
        if not isinstance(part, Mapping):
            raise ConfigError(
                f"`{name}` has no fields of its own. Received: --set {path}=...",
                fix=f"Set it as a whole: --set '{name}=[...]'.",
            )
        changed[name] = _with(dict(part), rest, value, path)
    elif value is None:
        changed.pop(name, None)
    else:
        changed[name] = value
    return changed
