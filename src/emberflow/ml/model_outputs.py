"""The meaning of a model's outputs: a class index, a probability, or a value."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import Column

CATEGORICAL = frozenset(
    {"categorical_crossentropy", "sparse_categorical_crossentropy", "categorical_focal_crossentropy"}
)
BINARY = frozenset({"binary_crossentropy", "binary_focal_crossentropy"})

Kind = Literal["classes", "binary", "value", "values"]


@dataclass(frozen=True, kw_only=True)
class ModelOutput:
    """One output of the model, and the meaning of its numbers.

    Attributes:
        output: Its name.
        kind: "classes": one score per class, and the highest is the prediction; "binary": one score, that of
            class 1; "value": a number; "values": several numbers, such as the rebuilt features of an autoencoder.
        is_probability: Whether the scores are probabilities; otherwise they are logits.
    """

    output: str
    kind: Kind
    is_probability: bool

    def prediction(self, raw: "Column") -> "Column":
        """Return the prediction as a double, which Spark's evaluators expect; several numbers as an array of them."""
        from pyspark.sql import functions as F

        if self.kind == "values":
            return raw.cast("array<double>")
        if self.kind == "classes":
            # F.array_position of Spark 3.5 takes no column as the value.
            return (F.call_function("array_position", raw, F.array_max(raw)) - 1).cast("double")
        score = raw[0]
        if self.kind == "binary":
            return (score > F.lit(0.5 if self.is_probability else 0.0)).cast("double")
        return score.cast("double")

    def scores(self, raw: "Column") -> "Column":
        """Return one score per class; a binary output becomes the scores of class 0 and class 1."""
        from pyspark.sql import functions as F

        if self.kind != "binary":
            return raw
        other = F.lit(1.0) - raw[0] if self.is_probability else -raw[0]
        return F.array(other.cast("float"), raw[0])


def losses_of(model: Any, outputs: Sequence[str]) -> list[Any]:
    """Return the loss of each output of a compiled model; of a model that is not built, its only loss."""
    losses = model.loss
    if isinstance(losses, dict):
        return [losses.get(name) for name in outputs]
    if isinstance(losses, list | tuple):
        return list(losses)
    return [losses] * max(len(outputs), 1)


def model_output_of(loss: Any, output: str, size: int | None) -> ModelOutput:
    """Return the meaning of an output of `size` numbers, which follows from the loss that it was trained with."""
    name, from_logits = _name_and_logits(loss)
    kind: Kind = "values" if (size or 1) > 1 else "value"
    if name in CATEGORICAL or (name in BINARY and (size or 1) > 1):
        kind = "classes"
    elif name in BINARY:
        kind = "binary"
    return ModelOutput(
        output=output, kind=kind, is_probability=kind in ("classes", "binary") and not from_logits
    )


def _name_and_logits(loss: Any) -> tuple[str, bool]:
    """Return the loss's name in snake case, and whether its inputs are logits."""
    import keras

    if loss is None:
        return "", False
    if isinstance(loss, str):
        found = keras.losses.get(loss)
        return getattr(found, "__name__", str(loss)), False
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    kind = getattr(loss, "__name__", None) or _snake_case(type(loss).__name__)
    return str(kind), bool(config.get("from_logits", False))


def _snake_case(name: str) -> str:
    """Return a class's name in snake case, in which Keras names the function of the same loss.

    >>> _snake_case("SparseCategoricalCrossentropy")
    'sparse_categorical_crossentropy'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
