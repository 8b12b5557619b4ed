"""Remote paths in programs whose TensorFlow opened them itself: today's opens local paths, and gs:// only."""

from collections.abc import Iterator
from contextlib import contextmanager

from emberflow.errors import StorageError

SIGN = "File system scheme"  # in TensorFlow's error for a path that it cannot open


@contextmanager
def explained_paths() -> Iterator[None]:
    """Raise TensorFlow's error for a remote path with what to change."""
    try:
        yield
    except Exception as error:
        if SIGN not in str(error):
            raise
        raise StorageError(
            f"TensorFlow must get a local path. Received: {type(error).__name__}: {error}",
            fix="Pass it str(ctx.mirror(path)), a local folder that is kept equal with the remote one; or let Spark "
            "read the rows: dfutil.loadTFRecords, InputMode.SPARK.",
        ) from error
