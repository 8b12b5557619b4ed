"""The rows of the feed benchmark: four kinds, written once as Parquet by Spark."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PIXELS = 784
IMAGE_BYTES = 100_000
NARROW = 40
FILES = 8
FEW = 64  # a run over so few rows is what a side takes to start
WRITE_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of rows.

    Attributes:
        rows: How many are fed in a measurement.
        tfos_rows: How many of them TensorFlowOnSpark is given: it would take minutes for all.
        batch_size: Of a worker's step.
        schema: Spark's.
        row_bytes: About the size of a row.
        decode: `dtypes` of `ctx.dataset`.
    """

    rows: int
    tfos_rows: int
    batch_size: int
    schema: str
    row_bytes: int
    decode: dict[str, str]

    @property
    def features(self) -> list[str]:
        """The columns of the features."""
        return [column.split()[0] for column in self.schema.split(", ") if not column.startswith("label")]


COLUMNS = [f"c{number} {'long' if number % 2 else 'float'}" for number in range(NARROW)]
KINDS = {
    "a": Kind(
        rows=120_000,
        tfos_rows=20_000,
        batch_size=256,
        schema="x array<float>, label long",
        row_bytes=4 * PIXELS,
        decode={},
    ),
    "b": Kind(
        rows=400_000,
        tfos_rows=20_000,
        batch_size=256,
        schema="x binary, label long",
        row_bytes=PIXELS,
        decode={"x": "uint8"},
    ),
    "c": Kind(
        rows=800_000,
        tfos_rows=12_000,
        batch_size=1024,
        schema=", ".join([*COLUMNS, "label long"]),
        row_bytes=6 * NARROW,
        decode={},
    ),
    "d": Kind(
        rows=5_000,
        tfos_rows=1_000,
        batch_size=32,
        schema="x binary, label long",
        row_bytes=IMAGE_BYTES,
        decode={"x": "uint8"},
    ),
}
NAMES = {
    "a": "784 float32 as array<float>, label",
    "b": "784 uint8 as binary, label",
    "c": "40 narrow columns (20 float, 20 long), label",
    "d": "images of 100 kB as binary, label",
}


def path_of(folder: Path, kind: str, size: str) -> str:
    """Return where rows are; `size` is ``all``, ``few`` or ``tfos``."""
    return str(folder / f"{kind}-{size}")


def write_rows(spark: Any, folder: Path, kind: str, scale: float) -> None:
    """Write one kind of rows: all, those for TensorFlowOnSpark, and few."""
    spec = KINDS[kind]
    sizes = {"all": int(spec.rows * scale), "tfos": int(spec.tfos_rows * scale), "few": FEW}
    for size, rows in sizes.items():
        made = spark.range(0, rows, 1, FILES).mapInArrow(_filler(kind), spec.schema)
        made.write.parquet(path_of(folder, kind, size))


def _filler(kind: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def fill(batches: Iterator[Any]) -> Iterator[Any]:
        import numpy as np

        step = max(1, WRITE_BYTES // KINDS[kind].row_bytes)
        for batch in batches:
            for start in range(0, batch.num_rows, step):
                ids = np.asarray(batch.column(0).slice(start, step))
                yield rows_of(kind, ids, np.random.default_rng(int(ids[0])))

    return fill


def rows_of(kind: str, ids: Any, random: Any) -> Any:
    """Return rows of a kind, numbered by `ids`, as a record batch."""
    import numpy as np
    import pyarrow as pa

    count, label = len(ids), pa.array(ids % 10)
    if kind == "c":
        columns = [
            pa.array(random.integers(0, 1000, count) if number % 2 else random.random(count, np.float32))
            for number in range(NARROW)
        ]
        return pa.RecordBatch.from_arrays(
            [*columns, label], names=[*(f"c{number}" for number in range(NARROW)), "label"]
        )
    width = IMAGE_BYTES if kind == "d" else PIXELS
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    if kind == "a":
        x = pa.ListArray.from_arrays(offsets, pa.array(random.random(count * width, np.float32)))
    else:
        values = pa.py_buffer(random.integers(0, 256, count * width, np.uint8))
        x = pa.Array.from_buffers(pa.binary(), count, [None, offsets.buffers()[1], values])
    return pa.RecordBatch.from_arrays([x, label], names=["x", "label"])
