"""Files in the idx format, in which MNIST is published: images, and their labels."""

import gzip
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow import storage
from emberflow.errors import DataError

# The format's codes of element types, and numpy's names for them.
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"


def find_labels(images: str) -> str | None:
    """Return the file of labels beside a file of images, by MNIST's names; None where there is none."""
    guess = images.replace("images-idx3", "labels-idx1")
    return guess if guess != images and storage.exists(guess) else None


def idx_batches(path: str, labels: str | None, size: int) -> tuple[Any, Iterator[Any], int]:
    """Return the schema, the batches of `size` rows, and the number of rows of images with their labels."""
    images, answers = read_images(path, labels)
    flat = images.reshape(len(images), -1)
    name = "image" if images.ndim > 1 else "value"
    kind = pa.int64() if np.issubdtype(images.dtype, np.integer) else pa.float32()
    fields = [pa.field(name, pa.list_(kind, flat.shape[1]) if images.ndim > 1 else kind)]
    if answers is not None:
        fields.insert(0, pa.field("label", pa.int64()))
    schema = pa.schema(fields)

    def batches() -> Iterator[Any]:
        for start in range(0, len(images), size):
            part = flat[start : start + size].astype(kind.to_pandas_dtype())
            values = pa.array(part.reshape(-1))
            column = pa.FixedSizeListArray.from_arrays(values, flat.shape[1]) if images.ndim > 1 else values
            arrays = (
                [column]
                if answers is None
                else [pa.array(answers[start : start + size].astype(np.int64)), column]
            )
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return schema, batches(), len(images)


def read_images(path: str, labels: str | None) -> tuple[Any, Any]:
    """Return the arrays of images and of their labels, one for each; None without a file of labels."""
    images = read_idx(path)
    answers = read_idx(labels) if labels is not None else None
    if answers is not None and len(answers) != len(images):
        raise DataError(
            f"Expected a label for each image. Received: {len(answers)} labels, {len(images)} images.",
            fix="Pass the labels of these images: --labels FILE.",
        )
    return images, answers


def read_idx(path: str) -> Any:
    """Return the array of an idx file, gzipped or not."""
    data = storage.read_bytes(path)
    data = gzip.decompress(data) if data[:2] == _GZIP_MAGIC else data
    if len(data) < 4 or data[:2] != b"\x00\x00" or data[2] not in _TYPES:
        raise DataError(
            f"Expected an idx file. Received: {path!r}, which starts with {data[:4]!r}.",
            fix="Name the format of the file, as in --from csv.",
        )
    shape = np.frombuffer(data, ">u4", count=data[3], offset=4).astype(np.int64)
    values = np.frombuffer(data, _TYPES[data[2]], offset=4 + 4 * data[3])
    if len(values) != shape.prod():
        raise DataError(
            f"The idx file is cut short. Received: {len(values)} of {shape.prod()} values.",
            fix="Download it again.",
        )
    return values.reshape(shape)
