"""Which Keras `tf.keras` is: old programs are written for the second, TensorFlow brings the third."""

import importlib.util
import os
import sys
from dataclasses import dataclass

from emberflow_compat.old_optimizers import honour_lr

VARIABLE = "TF_USE_LEGACY_KERAS"  # read by TensorFlow when it is imported


def prefer_keras_2() -> None:
    """Let `tf.keras` be tf_keras in this process, where it is installed and nobody has decided otherwise."""
    if "tensorflow" not in sys.modules and importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault(VARIABLE, "1")
        honour_lr()


@dataclass(frozen=True)
class KerasChoice:
    """The choice of the driver, which holds in each process that unpickles it, before what is pickled after it."""

    value: str

    def __reduce__(self) -> tuple[object, ...]:
        return _chosen, (self.value,)


def choice_for_nodes() -> KerasChoice:
    """Return the choice for nodes: that of this process, and tf_keras if it has none."""
    return KerasChoice(os.environ.get(VARIABLE, "1"))


def _chosen(value: str) -> KerasChoice:
    os.environ[VARIABLE] = value
    honour_lr()
    return KerasChoice(value)
