"""Starting TensorFlow without the lines that it prints before it can be told to be quiet."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from emberflow._collector import collector_paused
from emberflow._task.node_log import STANDARD_ERROR, without_noise


def start_tensorflow() -> None:
    """Import TensorFlow and let it look for devices: in local mode the user's terminal would show what it prints."""
    if "tensorflow" in sys.modules:
        return
    with _noise_left_out(), collector_paused():
        import tensorflow as tf

        tf.config.list_physical_devices()


@contextmanager
def _noise_left_out() -> Iterator[None]:
    """Hold back what is printed on standard error in the block; print it afterwards, without the noise."""
    with tempfile.TemporaryFile() as held:
        before = os.dup(STANDARD_ERROR)
        os.dup2(held.fileno(), STANDARD_ERROR)
        try:
            yield
        finally:
            os.dup2(before, STANDARD_ERROR)
            os.close(before)
            held.seek(0)
            with suppress(OSError):
                os.write(STANDARD_ERROR, b"".join(without_noise(held.readlines())))
