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
