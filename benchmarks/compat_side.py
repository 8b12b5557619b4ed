"""One side of the benchmark of old programs: the same program with either library, run by that library's Python.

``python -m benchmarks.compat_side SIDE FOLDER``, asked as `benchmarks.feed_side` is. The cluster stays up from the
first question to the last: its feeding is measured, and neither its start nor its end.
"""

from benchmarks import feed_side, live_side


class OldProgram(live_side.TensorFlowOnSparkTraining):
    """A program for TensorFlowOnSpark: its nodes take a hundred rows at a time, and drop them."""

    batch = 100


def main() -> None:
    live_side.adopt_nodes()
    feed_side.serve({"emberflow": OldProgram, "tfos": OldProgram})


if __name__ == "__main__":
    main()
