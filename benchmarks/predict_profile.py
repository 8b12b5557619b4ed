"""Where does the time of a scoring task's Python process go, without Spark?

CPU microseconds per row of 784 numbers (``array<float>``, float32 in ``binary``, bytes in ``binary``) from Arrow to a
model's inputs, into tensors, through the model and back into Arrow, for several numbers of rows in one call, with
one thread. ``python -m benchmarks.predict_profile [MODEL]``
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import print_result

ROWS = 16_384
CALLS = (32, 128, 512, 1024, 1337, 4096)
PIXELS = 784
REPEATS = 5


def cpu_microseconds(action: Callable[[], object]) -> float:
    """Return the least CPU time of several calls, per row."""
    action()
    seconds = []
    for _ in range(REPEATS):
        started = time.process_time()
        action()
        seconds.append(time.process_time() - started)
    return round(min(seconds) / ROWS * 1e6, 2)


def batches(kind: str) -> Any:
    """Return all rows as one Arrow batch."""
    import numpy as np
    import pyarrow as pa

    pixels = np.random.default_rng(0).random((ROWS, PIXELS), np.float32)
    if kind == "array":
        offsets = pa.array(np.arange(ROWS + 1, dtype=np.int32) * PIXELS)
        column = pa.ListArray.from_arrays(offsets, pa.array(pixels.reshape(-1)))
    else:
        rows = pixels if kind == "binary" else (pixels * 255).astype(np.uint8)
        column = pa.array([row.tobytes() for row in rows], pa.binary())
    return pa.RecordBatch.from_arrays([column], names=["x"])


def profile(path: str, kind: str, rows: int) -> dict[str, float]:
    """Return the CPU time of each stage for calls of so many rows."""
    import pyarrow as pa

    import tensorflow as tf
    from emberflow._score.input_plan import InputOptions, plan_inputs
    from emberflow._score.input_rows import row_groups
    from emberflow._score.output_plan import OutputPlan, arrow_of
    from emberflow._score.saved_model import read_saved_model

    signature = tf.saved_model.load(path).signatures["serving_default"]
    facts = read_saved_model(
        Path(path, "saved_model.pb").read_bytes(), path=path, signature="serving_default", tags=("serve",)
    )
    batch = batches(kind)
    dtypes = {"x": "uint8"} if kind == "bytes" else {}
    plans = plan_inputs(batch.schema, facts, "x", InputOptions(shapes={}, dtypes=dtypes))
    output = OutputPlan(name="output_0", column="prediction", type=pa.list_(pa.float32()))
    cuts = [batch.slice(start, rows) for start in range(0, ROWS, rows)]
    groups = [row_groups(plans, cut)[0][0] for cut in cuts]
    tensors = [tf.convert_to_tensor(group.arrays["x"]) for group in groups]
    answers = [signature(x=tensor)["output_0"].numpy() for tensor in tensors]
    return {
        "arrow_to_arrays": cpu_microseconds(lambda: [row_groups(plans, cut) for cut in cuts]),
        "into_tensors": cpu_microseconds(
            lambda: [tf.convert_to_tensor(group.arrays["x"]) for group in groups]
        ),
        "model": cpu_microseconds(lambda: [signature(x=tensor)["output_0"].numpy() for tensor in tensors]),
        "to_arrow": cpu_microseconds(lambda: [arrow_of(output, each, len(each)) for each in answers]),
    }


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    model = sys.argv[1] if len(sys.argv) > 1 else "cnn"
    with tempfile.TemporaryDirectory(prefix="emberflow-profile-") as folder:
        side = Path(__file__).parent / "predict_side.py"
        subprocess.run([sys.executable, str(side), "models", folder], check=True)
        path = str(Path(folder, model))
        found = {
            kind: {rows: profile(path, kind, rows) for rows in CALLS} for kind in ("array", "binary", "bytes")
        }
    print_result("predict_profile", {"model": model, "cpu_microseconds_per_row": found})


if __name__ == "__main__":
    main()
