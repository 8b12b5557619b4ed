"""What a model's output means: a class index, a probability, or a value."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import Column

CATEGORICAL = frozenset(
    {"categorical_crossentropy", "sparse_categorical_crossentropy", "categorical_focal_crossentropy"}
)
BINARY = frozenset({"binary_crossentropy", "binary_focal_crossentropy"})

Kind = Literal["classes", "binary", "value"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One output of the model.

    Attributes:
        output: Its name.
        kind: "classes": the highest of several scores names the class; "binary": one score, for class 1;
            "value": a number.
        is_probability: Whether the scores are probabilities; else they are logits.
    """

    output: str
    kind: Kind
    is_probability: bool

    def prediction(self, raw: "Column") -> "Column":
        """Return the prediction as a double: what Spark's evaluators expect."""
        from pyspark.sql import functions as F

        if self.kind == "classes":
            return (F.array_position(raw, F.array_max(raw)) - 1).cast("double")
        score = raw[0]
        if self.kind == "binary":
            return (score > F.lit(0.5 if self.is_probability else 0.0)).cast("double")
        return score.cast("double")

    def scores(self, raw: "Column") -> "Column":
        """Return one score per class: a binary output becomes those of class 0 and class 1."""
        from pyspark.sql import functions as F

        if self.kind != "binary":
            return raw
        other = F.lit(1.0) - raw[0] if self.is_probability else -raw[0]
        return F.array(other.cast("float"), raw[0])


def answer_of(loss: Any, output: str, size: int | None) -> Answer:
    """Tell from the loss it was trained with what an output of `size` numbers means."""
    name, from_logits = _described(loss)
    kind: Kind = "value"
    if name in CATEGORICAL or (name in BINARY and (size or 1) > 1):
        kind = "classes"
    elif name in BINARY:
        kind = "binary"
    return Answer(output=output, kind=kind, is_probability=kind != "value" and not from_logits)


def _described(loss: Any) -> tuple[str, bool]:
    """Return the loss's name in snake case and whether it takes logits."""
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
    """Return a class's name as Keras names the function of the same loss.

    >>> _snake_case("SparseCategoricalCrossentropy")
    'sparse_categorical_crossentropy'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
