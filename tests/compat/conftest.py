"""The packages of compat/src, imported once so that other tests of this process keep their Keras."""

import os

import pytest

with pytest.MonkeyPatch.context() as patch:
    patch.setattr(os, "environ", os.environ.copy())  # importing the package chooses a Keras for its process
    import spark_tensorflow_distributor  # noqa: F401
    import tensorflowonspark  # noqa: F401
