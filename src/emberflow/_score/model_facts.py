"""What is known of a model before it runs: its inputs, its outputs, the library that created it."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from emberflow._feed.element_types import BYTES

Shape = tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One input or output of a model.

    Attributes:
        name: The model's name for it.
        dtype: Numpy's name of its dtype, ``bytes`` for tf.string, or None where it follows from the data.
        shape: Dimensions of one row, None for those that vary; None where the rank is unknown.
        rows: The number of rows that a call must have, or None for any.
        is_ragged: Whether it is a tf.RaggedTensor.
        has_rows: Whether the first dimension counts rows.
    """

    name: str
    dtype: str | None = None
    shape: Shape | None = None
    rows: int | None = None
    is_ragged: bool = False
    has_rows: bool = True

    def __str__(self) -> str:
        shape = "of any shape" if self.shape is None else f"of shape {shape_text(self.shape)}"
        dtype = {None: "any type", BYTES: "string"}.get(self.dtype, self.dtype)
        return f"{self.name} ({dtype} {shape}{', ragged' if self.is_ragged else ''})"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The inputs and outputs of a model.

    Attributes:
        kind: "saved_model", "keras" or "function".
        inputs: In the model's own order.
        outputs: In the model's own order.
        signature: The SavedModel's signature, else empty.
        tags: The SavedModel's tags, else empty.
        versions: The libraries that created the model, with their versions.
    """

    kind: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    signature: str = ""
    tags: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> str:
        """Return the facts as one line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ModelFacts":
        """Return the facts that `to_json` wrote."""
        read = json.loads(text)
        return cls(
            kind=read["kind"],
            inputs=tuple(_tensor(one) for one in read["inputs"]),
            outputs=tuple(_tensor(one) for one in read["outputs"]),
            signature=read["signature"],
            tags=tuple(read["tags"]),
            versions=tuple((name, version) for name, version in read["versions"]),
        )


def _tensor(read: dict[str, Any]) -> Tensor:
    shape = read.pop("shape")
    return Tensor(**read, shape=None if shape is None else tuple(shape))


def shape_text(shape: Shape) -> str:
    """Return a shape as users write it.

    >>> shape_text((28, None)), shape_text((3,))
    ('(28, any)', '(3,)')
    """
    sizes = ", ".join("any" if size is None else str(size) for size in shape)
    return f"({sizes},)" if len(shape) == 1 else f"({sizes})"
