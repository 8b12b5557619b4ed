"""Which cases are compared, and how. This side needs no TensorFlow."""

from typing import Any

import numpy as np

TWO = [
    "sgd", "classes", "even", "heads", "heads_empty", "clipnorm_schedule", "global_clipnorm", "ema", "accumulate",
    "decay", "sample_weight", "class_weight", "validation", "own_step", "bare_numbers", "two_optimizers",
    "embedding_sgd", "embedding_adam", "embedding_clip", "several_steps", "half", "brain", "eager", "empty",
    "regularized", "unbuilt", "jit", "nested", "add_mean", "add_sum", "sum", "scalar_sum", "scalar_mean",
    "unlike_heads", "unlike_weighted", "own_loss", "frozen", "lora", "overflow", "metrics", "embedding_accumulate",
    "masked", "masked_twice", "ignored_class", "one_row", "shared", "shared_empty", "shared_masked", "shared_half",
    "shared_eager", "shared_several_steps",
]  # fmt: skip
LONG = [  # in the full run only: another case shows the same mechanism in each run
    "classes", "even", "heads_empty", "ema", "decay", "class_weight", "embedding_sgd", "embedding_clip", "brain",
    "nested", "add_mean", "scalar_sum", "scalar_mean", "unlike_weighted", "own_loss", "frozen", "masked",
    "masked_twice", "embedding_accumulate", "shared", "shared_half", "shared_eager", "shared_several_steps",
]  # fmt: skip
THREE = ["three", "three_heads", "three_embedding", "three_shared"]
LOCAL = ["batchnorm", "batchnorm_empty", "dropout"]
TOLERANCE = {"half": 2e-3, "brain": 1e-2, "shared_half": 2e-3}
QUICK = [
    "sgd",
    "embedding_adam",
    "several_steps",
    "empty",
]  # with other transports and on a cluster, in each run


def differences(got: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> dict[str, float]:
    """Name each number that is not the same; NaN is never the same."""
    assert got.keys() == wanted.keys()
    numbers = [name for name in wanted if name not in ("bits", "seeds")]
    far = {name: worst(got[name], wanted[name]) for name in numbers}
    return {name: distance for name, distance in far.items() if not distance <= tolerance}


def worst(got: Any, wanted: Any) -> float:
    if got.shape != wanted.shape:
        return float("inf")
    distance = np.abs(got.astype(np.float64) - wanted.astype(np.float64)) / np.maximum(1, np.abs(wanted))
    return float("nan") if np.isnan(distance).any() else float(distance.max(initial=0))
