"""What does the record of a run cost?

Two workers on ``local-cluster[2,1,1024]`` that report a metric 50 times per second each for 20 seconds, recorded on
local disk. Measured is what the driver spends on it: the seconds in which its thread notes events, and the CPU
seconds of the thread that writes them, over the seconds of the run: of each of three runs. A run without a record is
measured beside them. ``python -m benchmarks.record [SECONDS]``
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import emberflow as ef
from benchmarks.measure import print_result
from benchmarks.warm import session
from emberflow._record.record_writer import RecordWriter
from emberflow._record.recorder import Recorder

SECONDS = 20.0
RUNS = 3
PER_SECOND = 50


class Spent:
    """Seconds that calls of one method took: by the clock, or of CPU time."""

    def __init__(self, owner: type, name: str, clock: Any) -> None:
        self.seconds = 0.0
        self.calls = 0
        method = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = clock()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds += clock() - begin
                self.calls += 1

        setattr(owner, name, timed)


def training(seconds: float) -> Any:
    """Return a function that reports for so long."""

    def train(ctx: Any) -> None:
        for step in range(int(seconds * PER_SECOND)):
            ctx.wait_until_over(1 / PER_SECOND)
            ctx.report(step=step, loss=1 / (step + 1), accuracy=step / 1000, epoch=step // 100)
            if step % PER_SECOND == 0:
                print("step", step, flush=True)

    return train


def main() -> None:
    """Measure, print the line."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    spark = session()
    ef.run(
        training(1.0), workers=2, spark=spark, verbose=False
    )  # Spark's own first job is not what is measured
    begin = time.monotonic()
    ef.run(training(seconds), workers=2, spark=spark, verbose=False)
    without = time.monotonic() - begin
    noted = Spent(Recorder, "emit", time.perf_counter)
    written = Spent(RecordWriter, "_write", time.thread_time)
    runs = [recorded(spark, seconds, noted, written) for _ in range(RUNS)]
    spark.stop()
    shares = sorted(run["share"] for run in runs)
    print_result(
        "record", {"seconds_without": round(without, 2), "share": shares[len(shares) // 2], "runs": runs}
    )


def recorded(spark: Any, seconds: float, noted: Spent, written: Spent) -> dict[str, float]:
    """Return what one recorded run took."""
    before = noted.seconds, written.seconds, noted.calls
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        result = ef.run(training(seconds), workers=2, spark=spark, verbose=False, record=folder)
        total = time.monotonic() - begin
        size = sum(file.stat().st_size for file in Path(result.record or folder).iterdir())
    noting, writing = noted.seconds - before[0], written.seconds - before[1]
    return {
        "seconds": round(total, 2),
        "events": noted.calls - before[2],
        "noting_seconds": round(noting, 4),
        "writing_cpu_seconds": round(writing, 4),
        "share": round((noting + writing) / total, 5),
        "record_bytes": size,
    }


if __name__ == "__main__":
    main()
