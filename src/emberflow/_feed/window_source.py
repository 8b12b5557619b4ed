"""A Python generator as a `tf.data.Dataset`, as `Dataset.from_generator` makes one, with less work in TensorFlow.

`from_generator` compares each element with its signature in Python, and wraps the generator in a `flat_map` whose
function is prepared again in each epoch: 0.2 ms per element and 10 ms per epoch more. Our windows have the types and
shapes that `_feed/pipeline.py` declares, so nothing has to be compared.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Windows = Callable[[], Iterator[tuple[object, ...]]]


class _OpenGenerators:
    """The generators of iterators that exist, each by its number."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._numbers = itertools.count()
        self._open: dict[int, Iterator[tuple[object, ...]]] = {}

    def start(self) -> Any:
        """Start a generator; return its number."""
        number = next(self._numbers)
        self._open[number] = self._windows()
        return np.int64(number)

    def next(self, number: Any) -> tuple[object, ...]:
        """Return the next window of a generator; TensorFlow takes `StopIteration` as its end."""
        return next(self._open[int(number)])

    def end(self, number: Any) -> Any:
        """Drop a generator, at its end or in the middle of it; return any number, since TensorFlow wants one."""
        self._open.pop(int(number), None)
        return number


def dataset_of_windows(windows: Windows, specs: Sequence[Any]) -> Any:
    """Return a dataset whose every iteration is one generator; `specs` are those of the arrays that it yields."""
    import tensorflow as tf

    generators = _OpenGenerators(windows)
    number = tf.TensorSpec([], tf.int64)

    def start() -> Any:
        return tf.ensure_shape(tf.numpy_function(generators.start, [], tf.int64), [])

    def take(number: Any) -> Any:
        arrays = tf.numpy_function(generators.next, [number], [spec.dtype for spec in specs])
        for array, spec in zip(arrays, specs, strict=True):
            array.set_shape(spec.shape)
        return tuple(arrays)

    def end(number: Any) -> Any:
        return tf.numpy_function(generators.end, [number], tf.int64)

    functions = [
        tf.function(function, autograph=False, input_signature=signature).get_concrete_function()
        for function, signature in ((start, []), (take, [number]), (end, [number]))
    ]
    source = tf.raw_ops.GeneratorDataset(
        init_func_other_args=[],
        next_func_other_args=[],
        finalize_func_other_args=[],
        init_func=functions[0],
        next_func=functions[1],
        finalize_func=functions[2],
        output_types=[spec.dtype for spec in specs],
        output_shapes=[spec.shape for spec in specs],
    )
    dataset = tf.data.experimental.from_variant(source, tuple(specs))
    # TensorFlow forgets a function with its last Python reference. Datasets made of this one refer to it.
    dataset.emberflow_functions = functions
    return dataset
