"""What the record of a training says of its Params: short text and numbers, no code and no secrets."""

import re
from collections.abc import Container, Mapping
from typing import Any

from pyspark.ml.param import Params

from emberflow.ml.run_params import RUN_OPTIONS

LENGTH = 200  # characters of one value
MOST = 100  # values of one estimator
HIDDEN = "(not recorded)"
_SECRET = re.compile(
    r"passw|passphrase|secret|credential|(api|access|private|auth)_?key|(^|_)auth(_|$)|(^|_)token$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # accessToken is access_Token
_USER = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # of an address: it may hold a password


def shown_params(stage: Params, recorded: Container[str] = RUN_OPTIONS, **objects: Any) -> dict[str, Any]:
    """Return the Params that the user has set, by name.

    Args:
        stage: The estimator.
        recorded: Params that are options of `ef.run`: the record has these in any case.
        objects: What it was given in addition, such as the function that builds the model.
    """
    found: dict[str, Any] = {name: _named(each) for name, each in objects.items() if each}
    for param in stage.params:
        if stage.isSet(param) and param.name not in recorded:
            value = stage.getOrDefault(param)
            if param.name == "args":  # each is an option of the user's own
                found |= {f"args.{name}": _shown(each, name) for name, each in value.items()}
            else:
                found[param.name] = _shown(value, param.name)
    return dict(list(found.items())[:MOST])


def _shown(value: Any, name: str) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return _cut(HIDDEN if _is_secret(name) else _text(value))


def _text(value: Any) -> str:
    """Return a value as people write it.

    >>> _text({"class_name": "SGD", "config": {"name": "SGD", "learning_rate": 0.0099999998, "nesterov": False}})
    'SGD(learning_rate=0.01)'
    >>> _text(["loss", _text, object()])
    'loss, _text, object'
    """
    match value:
        case str():
            return _USER.sub("***", value)
        case bool() | int():
            return str(value)
        case float():
            return f"{value:.6g}"
        case {"class_name": str(kind), "config": {**config}}:  # a Keras object
            chosen = {
                name: each for name, each in config.items() if each not in (None, False) and name != "name"
            }
            return f"{kind}({_pairs(chosen, '=')})"
        case Mapping():
            return _pairs(value, ": ")
        case list() | tuple():
            return ", ".join(map(_text, value))
        case _:
            return _named(value)


def _pairs(values: Mapping[Any, Any], sign: str) -> str:
    shown = {name: HIDDEN if _is_secret(str(name)) else _text(each) for name, each in values.items()}
    return ", ".join(f"{name}{sign}{text}" for name, text in shown.items())


def _named(value: Any) -> str:
    """Return what an object is called: its repr may have an address in it, or all of its content."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_named, value))
    own = getattr(value, "__name__", None) or getattr(value, "name", None)
    return _cut(own if isinstance(own, str) and own else type(value).__name__)


def _is_secret(name: str) -> bool:
    """Tell whether a name is that of something which nobody else may see.

    >>> [name for name in ("apiKey", "hf_token", "max_tokens", "tokenizer", "key_dim") if _is_secret(name)]
    ['apiKey', 'hf_token']
    """
    return _SECRET.search(_CAMEL.sub("_", name)) is not None


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH else f"{text[:LENGTH]} ..."
