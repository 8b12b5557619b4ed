"""Objects as text: the same bytes for the same objects."""

import json
from collections.abc import Sequence
from typing import Any

import yaml

Document = dict[str, Any]


class _Dumper(yaml.SafeDumper):
    """Writes shared objects in full, lists indented below their name."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Write no anchors: each object is to be read by itself."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        """Indent lists below their name."""
        return super().increase_indent(flow, False)


def yaml_text(documents: Sequence[Document]) -> str:
    """Return the documents as one YAML text."""
    parts = [
        yaml.dump(each, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)
        for each in documents
    ]
    return "---\n".join(parts)


def json_text(documents: Sequence[Document]) -> str:
    """Return the one document as JSON."""
    return "".join(json.dumps(each, indent=2) + "\n" for each in documents)


def without_none(values: Document) -> Document:
    """Return the entries that have a value.

    >>> without_none({"a": None, "b": 0})
    {'b': 0}
    """
    return {name: value for name, value in values.items() if value is not None}
