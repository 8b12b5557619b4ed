"""From the task's process to the node's: a finished spool as a file descriptor, or a stream of record batches.

The task writes the spool itself and passes the open file: rows are not copied between processes, and there is no path
that another process could open or that could be left behind. The key of an encrypted spool goes with it.
"""

import json
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from emberflow._feed.feed_progress import Progress, timed
from emberflow._feed.shard_facts import ShardFacts
from emberflow._feed.spool import SpoolFile
from emberflow._protocol.byte_blocks import LENGTH, receive_exactly
from emberflow.errors import DataError


def send_spool(sock: socket.socket, name: str, file: SpoolFile) -> None:
    """Send a finished spool over a Unix socket; the caller closes its own descriptor."""
    key = None if file.key is None else file.key.hex()
    text = json.dumps([name, file.facts.to_json(), key]).encode()
    socket.send_fds(sock, [LENGTH.pack(len(text))], [file.fd])
    sock.sendall(text)


def receive_spool(sock: socket.socket) -> tuple[str, SpoolFile]:
    """Return the name and the file that `send_spool` sent; the caller closes the file.

    It waits as long as the socket's timeout.
    """
    head, fds, _, _ = socket.recv_fds(sock, LENGTH.size, 1)
    try:
        head += receive_exactly(sock, LENGTH.size - len(head))
        name, facts, key = json.loads(receive_exactly(sock, *LENGTH.unpack(head)))
        if not fds:
            raise _broken_off()
    except BaseException as error:
        for fd in fds:
            os.close(fd)
        if isinstance(error, ConnectionResetError):
            raise _broken_off() from error
        raise
    file = SpoolFile(
        fd=fds[0], facts=ShardFacts.from_json(facts), key=None if key is None else bytes.fromhex(key)
    )
    return name, file


class ReaderGoneError(BrokenPipeError):
    """The process that reads the rows has exited or closed its end of the socket."""


def send_batches(sock: socket.socket, batches: Iterable[Any], progress: Progress | None = None) -> None:
    """Send record batches over a socket as an Arrow stream, then end it.

    Back pressure: a full socket blocks the caller, so no more than one batch and the socket's buffer are in flight. A
    closed socket raises `ReaderGoneError`; errors of the source are not changed.
    """
    progress = progress or Progress()
    writer = None
    with _noticing_the_reader():
        file = sock.makefile("wb")
    try:
        for batch in timed(batches, progress):
            with progress.timing("sink"), _noticing_the_reader():
                if writer is None:
                    writer = pa.ipc.new_stream(pa.PythonFile(file, "w"), batch.schema)
                writer.write_batch(batch)
            progress.rows += batch.num_rows
            progress.bytes += batch.nbytes
        with _noticing_the_reader():
            if writer is not None:
                writer.close()  # the end marker: without it the stream is incomplete
            file.flush()
            sock.shutdown(socket.SHUT_WR)
    finally:
        with suppress(OSError):  # closing flushes again, and the reader may be gone
            file.close()


@contextmanager
def _noticing_the_reader() -> Iterator[None]:
    """Distinguish an error of the socket from one of the source, which may be an OSError as well."""
    try:
        yield
    except OSError as error:
        raise ReaderGoneError(*error.args) from error


def receive_batches(sock: socket.socket) -> Iterator[Any]:
    """Yield the record batches that `send_batches` sends; an incomplete stream is an error."""
    with sock.makefile("rb") as file:
        if not file.peek(1):
            return  # no schema: a shard without rows
        try:
            yield from pa.ipc.open_stream(pa.PythonFile(_CompleteStream(file), "r"))
        except (pa.ArrowInvalid, OSError) as error:
            raise _broken_off() from error


class _CompleteStream:
    """A file whose early end is an error.

    Arrow accepts an end between two batches as the end of the stream. But a stream without its end marker is one
    whose sender died, and its missing rows would be lost silently.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.closed = False

    def read(self, size: int) -> bytes:
        data: bytes = self._file.read(size)
        if len(data) < size:
            raise OSError("the stream ended early")
        return data

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def _broken_off() -> DataError:
    return DataError(
        "The rows of the shard must be complete. Received: a stream that ended early.",
        fix="See the Spark task's own error: it failed before it had sent all rows.",
    )
