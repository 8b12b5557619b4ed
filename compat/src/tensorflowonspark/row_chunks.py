"""Rows of any Python objects as chunks of bytes: what travels between Spark's tasks and the nodes.

A row alone would cost a message; a whole partition would be in memory at once. Spark pickles the rows of an RDD too:
who may send rows may run code in any case. These bytes come over Emberflow's authenticated connections only.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from tensorflowonspark.old_errors import NoResults, ResultsError

CHUNK_BYTES = (
    1 << 17
)  # few enough rows that training on them is progress, enough that a chunk's own cost does not count
MOST_ROWS = 8192


def chunks_to_train(rows: Iterable[Any]) -> Iterator[bytes]:
    """Yield the rows of a partition in chunks, an empty one where it has none."""
    is_empty = True
    for chunk in _chunks(iter(rows)):
        is_empty = False
        yield chunk
    if is_empty:
        yield pickled([])


def chunks_to_ask(rows: Iterable[Any], feed_timeout: float) -> Iterator[tuple[bytes, float]]:
    """Yield the rows of a partition in chunks, each as a row of a DataFrame."""
    return ((chunk, feed_timeout) for chunk in _chunks(iter(rows)))


def results_in(row: Sequence[bytes]) -> list[Any]:
    """Return the results of a chunk, from a row of a DataFrame; raise why there are none."""
    results = pickle.loads(row[0])
    if isinstance(results, NoResults):
        raise ResultsError(results.problem, results.fix)
    found: list[Any] = results
    return found


def pickled(values: list[Any]) -> bytes:
    """Return values as bytes; those of classes that the program itself defines as Spark would pickle them."""
    try:
        return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle

        return bytes(cloudpickle.dumps(values))


def rows_in(chunk: bytes) -> list[Any]:
    """Return the rows of a chunk."""
    rows: list[Any] = pickle.loads(chunk)
    return rows


def _chunks(source: Iterator[Any]) -> Iterator[bytes]:
    size = 1
    while rows := list(islice(source, size)):
        chunk = pickled(rows)
        yield chunk
        size = min(MOST_ROWS, max(1, CHUNK_BYTES * len(rows) // len(chunk)))
