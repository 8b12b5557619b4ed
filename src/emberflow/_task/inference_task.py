"""What runs inside each task of ``cluster.infer``: batches go to a node, and come back with its results."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emberflow._protocol.live_messages import ReplyFollows, RequestsBegin
from emberflow._task.feeding_task import task_numbers
from emberflow._task.node_dialing import FeedAccess, connected_to_any
from emberflow._task.row_writer import spark_rows
from emberflow.errors import DataError, PeerError

if TYPE_CHECKING:
    import pyarrow as pa

    from emberflow._feed.batch_connection import BatchConnection

REQUEST_BYTES = 4 << 20  # as large as the batches of a round: the cost per request is small then
PROBE_SCHEMA = "columns binary"


@dataclass(frozen=True, kw_only=True)
class InferenceTask:
    """A call of ``cluster.infer``, as its tasks receive it.

    Attributes:
        access: The nodes that take requests.
        name: The requests' name.
        columns: The Arrow schema of the result's columns, serialized; b"" in the task that finds it out.
    """

    access: FeedAccess
    name: str
    columns: bytes = b""


def infer_rows(task: InferenceTask, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Yield the rows with the columns of their results."""
    import pyarrow as pa

    columns = pa.ipc.read_schema(pa.py_buffer(task.columns))
    for rows, results in replies(task, batches):
        added = [_cast(results, field) for field in columns]
        names = [*rows.schema.names, *columns.names]
        yield pa.RecordBatch.from_arrays([*rows.columns, *added], names=names)


def probe_columns(task: InferenceTask, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Yield the schema of the first result."""
    import pyarrow as pa

    for _, results in replies(task, batches):
        yield pa.RecordBatch.from_pydict({"columns": [results.schema.serialize().to_pybytes()]})
        return


def replies(task: InferenceTask, batches: "Iterator[pa.RecordBatch]") -> Iterator[tuple[Any, Any]]:
    """Yield rows and their results, batch by batch, over one connection."""
    pieces = _pieces(spark_rows(batches))
    first = next(pieces, None)
    if first is None:
        return  # a partition without rows asks nobody
    partition, _ = task_numbers()
    with connected_to_any(task.access, partition) as connection:
        connection.send(RequestsBegin(task.name))
        connection.send_schema(first.schema)
        yield first, _asked(connection, first)
        for rows in pieces:
            yield rows, _asked(connection, rows)
        connection.send_end()


def _asked(connection: "BatchConnection", rows: Any) -> Any:
    connection.send_batch(rows)
    answer = connection.receive()
    if not isinstance(answer, ReplyFollows):
        raise PeerError(
            f"A node must reply to a request. Received: {answer!r:.80}.",
            fix="Check that driver and executors run the same version of emberflow.",
        )
    (results,) = connection.receive_stream()
    return results


def _pieces(batches: "Iterator[pa.RecordBatch]") -> Iterator[Any]:
    """Cut large batches: the node and this task hold one piece at a time."""
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = max(1, batch.num_rows * REQUEST_BYTES // max(REQUEST_BYTES, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _cast(results: Any, field: Any) -> Any:
    """Return a column of a result with the type that the DataFrame declares."""
    import pyarrow as pa

    at = results.schema.get_field_index(field.name)
    try:
        if at < 0:
            raise KeyError(field.name)
        column = results.column(at)
        return column if column.type == field.type else column.cast(field.type)
    except (pa.ArrowException, KeyError) as error:
        raise DataError(
            f"Each reply must have a column {field.name!r} of type {field.type}. "
            f"Received: {', '.join(f'{each.name}: {each.type}' for each in results.schema)}.",
            fix="Reply with the same columns to every request, or pass schema= to cluster.infer.",
        ) from error
