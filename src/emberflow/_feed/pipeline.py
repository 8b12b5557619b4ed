"""From windows of numpy arrays to a `tf.data.Dataset` of batches. Only this and `window_source` use TensorFlow."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from emberflow._feed.element_types import BYTES
from emberflow._feed.padding import Padding
from emberflow._feed.row_windows import TensorGroup
from emberflow._feed.tensor_columns import Column
from emberflow._feed.window_source import Windows, dataset_of_windows

PREFETCH = 4  # batches; a fixed number, so that a stopped trainer holds a known amount of memory
DEVICE_BYTES = 64 << 20  # of batches that wait on a device; it has gigabytes
_DEVICE_BATCHES = (2, 16)  # at least two, to copy one while the other is used

Arrange = Callable[[dict[str, Any]], Any]


class ConsumedTag:
    """The tag of the last batch that the consumer of a dataset took.

    A resource and not a `tf.Variable`, of which a strategy's scope would make copies on its devices.
    """

    def __init__(self, start: int) -> None:
        import tensorflow as tf

        with tf.init_scope(), tf.device("/CPU:0"):
            self._handle = tf.raw_ops.VarHandleOp(
                dtype=tf.int64, shape=[], shared_name="cd2c89b7-88b7-44c8-ad83-06c2a9158347"
            )
        self._note(tf.constant(start, tf.int64))

    def value(self) -> int:
        """Return the tag."""
        import tensorflow as tf

        return int(tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64))

    def note(self, tag: Any, batch: Any) -> Any:
        """Store the tag and return the batch, as an operation of the dataset's graph."""
        self._note(tag)
        return batch

    def _note(self, tag: Any) -> Any:
        import tensorflow as tf

        return tf.raw_ops.AssignVariableOp(resource=self._handle, value=tag)


def make_batches(
    windows: Windows,
    groups: Sequence[TensorGroup],
    arrange: Arrange,
    consumed: ConsumedTag,
    steps: int | None,
    *,
    one_batch_windows: bool = False,
) -> Any:
    """Return the dataset of batches.

    Args:
        windows: Returns the windows of the next iteration: arrays, the bounds of their batches, their tags.
        groups: The columns of each array.
        arrange: Lays out the tensors of a batch.
        consumed: Keeps the tag of the last batch that was taken.
        steps: Batches per iteration; None where their number is unknown.
        one_batch_windows: Whether each window is one batch: making a dataset of its batches takes TensorFlow 0.2 ms.
    """
    import tensorflow as tf

    number = tf.TensorSpec([None], tf.int64)
    specs = (*(spec for group in groups for spec in _specs(group)), number, number)

    def split(*window: Any) -> Any:
        *arrays, bounds, tags = window
        # Vectors of length one: a slice takes them as they are, without another operation.
        starts, stops = bounds[:-1, tf.newaxis], bounds[1:, tf.newaxis]
        steps_of_window = tf.data.Dataset.from_tensor_slices((starts, stops, tags))
        return tf.data.Dataset.zip((steps_of_window, tf.data.Dataset.from_tensors(tuple(arrays)).repeat()))

    # Not inside of `split`: TensorFlow would prepare it anew for the first batch of each epoch, some 25 ms in which
    # the trainer waits.
    def cut(step: Any, arrays: Any) -> Any:
        start, stop, tag = step
        return tag, arrange(_cut(groups, arrays, start, stop))

    def only_batch(*window: Any) -> Any:
        *arrays, bounds, tags = window
        return cut((bounds[:1], bounds[1:], tags[0]), arrays)

    # Our functions are graph operations as they stand; to translate them takes each node a tenth of a second or more.
    as_it_is = tf.autograph.experimental.do_not_convert
    whole = dataset_of_windows(windows, specs)
    if one_batch_windows:
        batches = whole.map(as_it_is(only_batch))
    else:
        batches = whole.prefetch(1).flat_map(as_it_is(split)).map(as_it_is(cut))
    if steps is not None:
        # This way tf.data knows the number of batches, and a shorter first iteration is no error.
        batches = batches.repeat().take(steps)
    return batches.prefetch(PREFETCH).map(as_it_is(consumed.note)).with_options(_options(tf))


def first_gpu() -> str | None:
    """Return the device that TensorFlow computes on in this process, if it is a GPU."""
    import tensorflow as tf

    gpus = tf.config.list_logical_devices("GPU")
    return str(gpus[0].name) if gpus else None


def place_ahead(dataset: Any, device: str, rows: int) -> Any:
    """Return a dataset whose batches, of so many rows, are on the device before they are asked for.

    It must be the last transformation: TensorFlow has no others on devices.
    """
    import tensorflow as tf

    least, most = _DEVICE_BATCHES
    batches = max(least, min(most, DEVICE_BYTES // max(1, rows * _row_bytes(dataset.element_spec))))
    return dataset.apply(tf.data.experimental.prefetch_to_device(device, batches))


def _row_bytes(specs: Any) -> int:
    """Return the bytes of a row of a batch; a dimension of any length counts as one."""
    import tensorflow as tf

    leaves = tf.nest.flatten(specs)
    return sum(spec.dtype.size * math.prod(size or 1 for size in spec.shape[1:]) for spec in leaves)


def _options(tf: Any) -> Any:
    options = tf.data.Options()
    options.deterministic = True
    # Our last transformation counts what is consumed, so tf.data must not read ahead after it: neither by an injected
    # prefetch nor by turning the user's `map` into a parallel one.
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    # The rows are this rank's own already.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def _specs(group: TensorGroup) -> list[Any]:
    import tensorflow as tf

    dtype = tf.string if group.dtype == BYTES else tf.dtypes.as_dtype(group.dtype)
    if group.stacked:
        return [tf.TensorSpec([len(group.columns), None], dtype)]
    column = group.columns[0]
    values = tf.TensorSpec([None, *column.shape], dtype)
    return [values, *(tf.TensorSpec([None], tf.int64) for _ in range(column.ragged))]


def _cut(groups: Sequence[TensorGroup], arrays: Sequence[Any], start: Any, stop: Any) -> dict[str, Any]:
    """Return the rows of one batch by column name."""
    import tensorflow as tf

    rest = iter(arrays)
    batch: dict[str, Any] = {}
    for group in groups:
        values = next(rest)
        if group.stacked:
            rows = tf.unstack(_slice(values, start, stop, axis=1), num=len(group.columns))
            batch.update(zip((column.name for column in group.columns), rows, strict=True))
        else:
            column = group.columns[0]
            splits = [next(rest) for _ in range(column.ragged)]
            batch[column.name] = _rows(column, values, splits, start, stop)
    return batch


def _rows(column: Column, values: Any, splits: list[Any], start: Any, stop: Any) -> Any:
    import tensorflow as tf

    if not column.ragged:
        return _slice(values, start, stop)
    whole = tf.RaggedTensor.from_nested_row_splits(values, splits, validate=False)
    rows = whole[start[0] : stop[0]]
    return rows if column.padding is None else _padded(rows, column, column.padding)


def _padded(rows: Any, column: Column, padding: Padding) -> Any:
    import tensorflow as tf

    shape = [None, *padding.lengths, *column.shape]
    dense = rows.to_tensor(default_value=tf.cast(padding.value, rows.dtype), shape=shape)
    dense.set_shape(shape)
    return dense


def _slice(values: Any, start: Any, stop: Any, axis: int = 0) -> Any:
    """Return a range of an axis by one operation; Python's notation makes five of it."""
    import tensorflow as tf

    ahead = tf.zeros([axis], tf.int64)
    rows = tf.raw_ops.StridedSlice(
        input=values,
        begin=tf.concat([ahead, start], 0) if axis else start,
        end=tf.concat([ahead, stop], 0) if axis else stop,
        strides=tf.ones([axis + 1], tf.int64),
        begin_mask=axis,
        end_mask=axis,
    )
    shape = values.shape.as_list()
    shape[axis] = None
    rows.set_shape(shape)
    return rows
