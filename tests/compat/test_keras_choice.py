"""Importing the package chooses the Keras that old programs are written for."""

import os
import subprocess
import sys

import pytest

SHOW = "import os, tensorflowonspark; print(os.environ.get('TF_USE_LEGACY_KERAS'))"


@pytest.mark.parametrize(
    ("before", "program", "expected"),
    [
        (None, SHOW, "1"),
        ("0", SHOW, "0"),
        (None, "import sys; sys.modules['tensorflow'] = sys\n" + SHOW, "None"),
    ],
    ids=["by default", "chosen by the user", "too late"],
)
def test_the_choice_is_made_before_tensorflow_is_imported(
    before: str | None, program: str, expected: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    environment |= {"TF_USE_LEGACY_KERAS": before} if before is not None else {}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


@pytest.mark.full
def test_an_old_learning_rate_holds() -> None:
    program = """
import tensorflowonspark
import tensorflow as tf
print(float(tf.keras.optimizers.Adam(lr=0.25).learning_rate), float(tf.keras.optimizers.SGD(0.5).learning_rate))
print(tf.keras.Sequential.__module__)
"""
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    rates, module = done.stdout.strip().splitlines()
    assert rates == "0.25 0.5"
    assert module.startswith("tf_keras")
