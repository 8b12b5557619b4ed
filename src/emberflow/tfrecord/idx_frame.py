"""idx files as a DataFrame: the driver reads them, and Spark's tasks make arrays of the bytes."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from emberflow.tfrecord.idx_files import find_labels, read_images

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def idx_frame(spark: "SparkSession", path: str, labels: str | None = None) -> "DataFrame":
    """Return images with their labels: `label`, where there are labels, and `image`, an array of numbers.

    Args:
        spark: The session.
        path: The file of images, gzipped or not; the driver reads it, so ``file:/...`` is its own disk.
        labels: The file of labels; None looks for it beside the images, by MNIST's names.
    """
    from emberflow._driver.interpreter import map_in_arrow
    from emberflow._driver.paths import resolve_path

    path = resolve_path(spark, path)
    images, answers = read_images(path, resolve_path(spark, labels) if labels else find_labels(path))
    # Bytes travel to the tasks eight times as fast as arrays of long.
    rows = [
        (None if answers is None else int(answers[at]), image.tobytes()) for at, image in enumerate(images)
    ]
    frame = spark.createDataFrame(rows, "label long, image binary")
    kind = "long" if np.issubdtype(images.dtype, np.integer) else "float"
    task = functools.partial(_arrays, images.dtype.str, kind)
    whole = map_in_arrow(frame, task, f"label long, image array<{kind}>")
    return whole.select("image") if answers is None else whole


def _arrays(stored: str, kind: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the rows with their bytes as arrays."""
    wanted = {"long": pa.int64(), "float": pa.float32()}[kind]
    for batch in batches:
        images = batch.column(1).to_pylist()
        numbers = [
            pa.array(np.frombuffer(image, stored).astype(wanted.to_pandas_dtype())) for image in images
        ]
        offsets = np.cumsum([0, *(len(each) for each in numbers)])
        values = pa.concat_arrays(numbers) if numbers else pa.array([], wanted)
        column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
        yield pa.RecordBatch.from_arrays([batch.column(0), column], names=["label", "image"])
