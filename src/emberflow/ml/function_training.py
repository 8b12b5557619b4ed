"""What each node runs for FunctionEstimator: your function; the chief tells the driver what it exported."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberflow._score.model_source import fingerprint
from emberflow._score.model_versions import is_model
from emberflow.errors import ModelError

if TYPE_CHECKING:
    from emberflow._node.context import Context

RETURN = 'return ctx.export(model, "hdfs:///models/mnist/1")'


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The SavedModel that your function exported.

    Attributes:
        path: Where it is.
        fingerprint: The same as long as nobody replaces it.
    """

    path: str
    fingerprint: str

    @property
    def shown_value(self) -> str:
        """What a record has of it."""
        return self.path


@dataclass(frozen=True)
class FunctionTraining:
    """The function that `ef.run` runs: yours, pickled together with its arguments.

    Attributes:
        fn: Your function.
        preload: Packages that it uses.
        shown_options: What the record of the run says of the estimator's Params.
        shown_name: What it calls it.
    """

    fn: bytes = field(repr=False)
    preload: tuple[str, ...] = ()
    shown_options: Mapping[str, Any] = field(default_factory=dict)
    shown_name: str = "FunctionEstimator"

    def __call__(self, ctx: "Context") -> Exported | None:
        """Call your function on this node."""
        value = pickle.loads(self.fn)(ctx)
        return exported_by(ctx, value) if ctx.is_chief else None


def exported_by(ctx: "Context", value: Any) -> Exported:
    """Return what the chief exported; refuse a value that is not the path of a SavedModel."""
    if not isinstance(value, str | Path) or not str(value):
        raise ModelError(
            "Your function must return the path of the SavedModel that it exported, on the chief. "
            f"Received: {value!r} ({type(value).__name__}).",
            fix=f"End it with: {RETURN}",
        )
    path = ctx.absolute_path(str(value))
    if not is_model(path):
        raise ModelError(
            "Your function must return the path of a SavedModel. "
            f"Received: {path!r}, where the chief sees no complete one.",
            fix=f"Export the model and return its path: {RETURN}",
        )
    return Exported(path=path, fingerprint=fingerprint(path))
