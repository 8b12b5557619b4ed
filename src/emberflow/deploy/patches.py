"""Changes to rendered objects, for what a description has no field for: node selectors, tolerations, annotations."""

from collections.abc import Sequence
from typing import Any

from emberflow.deploy.documents import Document
from emberflow.errors import ConfigError


def patched(documents: Sequence[Document], patches: Sequence[Any]) -> list[Document]:
    """Return the documents with the patches laid over them.

    A patch with a kind, and perhaps a name, is for the objects that have them; one without is for every document.
    Values replace values, null removes them, and of lists the items with the same name are merged.
    """
    result = list(documents)
    for patch in patches:
        if not isinstance(patch, dict):
            raise ConfigError(
                f"A patch has fields with values. Received: {patch!r}.",
                fix="Write the fields as in the rendering.",
            )
        places = [place for place, each in enumerate(result) if _concerns(patch, each)]
        if not places:
            names = ", ".join(f"{each.get('kind')} {_name(each)}" for each in documents)
            raise ConfigError(
                f"No rendered object is meant by the patch of {patch.get('kind')} {_name(patch) or ''}.",
                fix=f"Name one of: {names}.",
            )
        for place in places:
            result[place] = merged(result[place], patch)
    return result


def merged(value: Any, patch: Any) -> Any:
    """Return a value with a patch laid over it.

    >>> merged({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    >>> merged([{"name": "x", "v": 1}], [{"name": "x", "w": 2}, {"name": "y"}])
    [{'name': 'x', 'v': 1, 'w': 2}, {'name': 'y'}]
    """
    if isinstance(value, dict) and isinstance(patch, dict):
        result = {name: each for name, each in value.items() if patch.get(name, each) is not None}
        result |= {name: merged(value.get(name), each) for name, each in patch.items() if each is not None}
        return result
    if _is_named(value) and _is_named(patch):
        changes = {each["name"]: each for each in patch}
        items = [merged(each, changes.pop(each["name"], {})) for each in value]
        return items + list(changes.values())
    return patch


def _is_named(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and "name" in each for each in value)
    )


def _concerns(patch: Document, document: Document) -> bool:
    kind = patch.get("kind")
    return kind in (None, document.get("kind")) and _name(patch) in (None, _name(document))


def _name(document: Document) -> str | None:
    metadata = document.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None
