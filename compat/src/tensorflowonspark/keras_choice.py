"""Which Keras `tf.keras` is: old programs are written for the second, TensorFlow brings the third."""

import importlib.util
import os
import sys

VARIABLE = "TF_USE_LEGACY_KERAS"  # read by TensorFlow when it is imported


def prefer_keras_2() -> None:
    """Let `tf.keras` be tf_keras in this process, where it is installed and nobody has decided otherwise."""
    if "tensorflow" not in sys.modules and importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault(VARIABLE, "1")


def keras_of_nodes() -> str:
    """Return the value of the variable in nodes: that of this process, and "1" if it has none."""
    return os.environ.get(VARIABLE, "1")
