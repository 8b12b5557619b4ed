"""Values of a description by the types of its dataclasses: every error names the field by its path."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from emberflow._names import check_names, closest
from emberflow.errors import ConfigError

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def wrong(path: str, expected: str, value: object, fix: str) -> ConfigError:
    """Return the error for a field.

    >>> print(wrong("roles.worker.replicas", "1 or more", 0, "Set 1."))
    `roles.worker.replicas` must be 1 or more. Received: roles.worker.replicas=0.
    Fix: Set 1.
    """
    return ConfigError(f"`{path}` must be {expected}. Received: {path}={value!r}.", fix=fix)


def join(path: str, name: object) -> str:
    """Return the path of a field of a field.

    >>> join("roles", "worker"), join("", "name")
    ('roles.worker', 'name')
    """
    return f"{path}.{name}" if path else str(name)


def convert(hint: Any, value: Any, path: str) -> Any:
    """Return the value as this type of field holds it, or raise an error with the field's path."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        kinds = [each for each in get_args(hint) if each is not types.NoneType]
        return None if value is None else convert(kinds[0], value, path)
    if origin is Literal:
        return _choice(get_args(hint), value, path)
    if origin is tuple:
        return _items(get_args(hint)[0], value, path)
    if origin is Mapping:
        key, kind = get_args(hint)
        return _entries(key, kind, value, path)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _part(hint, value, path)
    return _plain(hint, value, path)


def converted_fields(owner: Any, path: str = "") -> dict[str, Any]:
    """Return all fields of a dataclass's instance, converted."""
    hints = get_type_hints(type(owner))
    names = [each.name for each in dataclasses.fields(owner)]
    return {name: convert(hints[name], getattr(owner, name), join(path, name)) for name in names}


def build(kind: type, values: Any, path: str = "") -> Any:
    """Return an instance of the dataclass from a mapping of its fields."""
    if not isinstance(values, Mapping):
        raise wrong(path or "description", "fields with values", values, "Write `name: value` lines.")
    fields = {each.name: each for each in dataclasses.fields(kind)}
    check_names(map(str, values), list(fields), lambda name: f"There is no field `{join(path, name)}`.")
    for name, field in fields.items():
        no_default = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if no_default and name not in values:
            raise ConfigError(
                f"`{join(path, name)}` is missing.", fix=f"Add `{name}`; see `emberflow render --example`."
            )
    hints = get_type_hints(kind)
    return kind(**{name: convert(hints[name], value, join(path, name)) for name, value in values.items()})


def _part(kind: type, value: Any, path: str) -> Any:
    if isinstance(value, kind):
        return dataclasses.replace(value, **converted_fields(value, path))  # type: ignore[type-var]
    if isinstance(value, str) and hasattr(kind, "from_text"):
        return kind.from_text(value)
    return build(kind, value, path)


def _items(kind: Any, value: Any, path: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise wrong(path, "a list", value, f"Write [{value}] if it is the only one.")
    return tuple(convert(kind, each, f"{path}[{place}]") for place, each in enumerate(value))


def _entries(key: Any, kind: Any, value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong(path, "names with values", value, "Write `name: value` lines.")
    return {
        convert(key, name, join(path, name)): convert(kind, each, join(path, name))
        for name, each in value.items()
    }


def _choice(choices: tuple[str, ...], value: Any, path: str) -> Any:
    if value in choices:
        return value
    meant = closest(str(value), choices)
    fix = f"Did you mean {meant}?" if meant else f"Choose one of: {', '.join(choices)}."
    raise wrong(path, f"one of {', '.join(choices)}", value, fix)


def _plain(kind: type, value: Any, path: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    fix = f'Put quotes around it: "{value}".' if kind is str else f"Write {_WORDS[kind]}, without quotes."
    raise wrong(path, _WORDS[kind], value, fix)
