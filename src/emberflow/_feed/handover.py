"""From the task's process to the node's: a finished spool by its descriptor, or a stream of record batches.

The task writes the spool itself and hands over the open file: no row takes a hop, and there is no path that
another process could open or that could be left behind.
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
    """Hand a finished spool over a Unix socket; the caller still closes its own descriptor."""
    text = json.dumps([name, file.facts.to_json()]).encode()
    socket.send_fds(sock, [LENGTH.pack(len(text))], [file.fd])
    sock.sendall(text)


def receive_spool(sock: socket.socket) -> tuple[str, SpoolFile]:
    """Return the name and the file that `send_spool` sent; the caller closes the file.

    How long to wait is the socket's own timeout.
    """
    head, fds, _, _ = socket.recv_fds(sock, LENGTH.size, 1)
    try:
        head += receive_exactly(sock, LENGTH.size - len(head))
        name, facts = json.loads(receive_exactly(sock, *LENGTH.unpack(head)))
        if not fds:
            raise _broken_off()
    except BaseException as error:
        for fd in fds:
            os.close(fd)
        if isinstance(error, ConnectionResetError):
            raise _broken_off() from error
        raise
    return name, SpoolFile(fd=fds[0], facts=ShardFacts.from_json(facts))


class ReaderGoneError(BrokenPipeError):
    """The process that the rows were for has ended, or has closed its end of the socket."""


def send_batches(sock: socket.socket, batches: Iterable[Any], progress: Progress | None = None) -> None:
    """Pour record batches into a socket as an Arrow stream, then end it.

    A full socket holds the caller back, so that no more than one batch and the socket's own buffer are
    under way. A reader that is gone raises `ReaderGoneError`; what the source raises comes out as it is.
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
                writer.close()  # the mark that tells a whole stream from one that broke off
            file.flush()
            sock.shutdown(socket.SHUT_WR)
    finally:
        with suppress(OSError):  # closing flushes again, to a reader that may be gone
            file.close()


@contextmanager
def _noticing_the_reader() -> Iterator[None]:
    """Tell an error of the socket from one of the source, which may be an OSError as well."""
    try:
        yield
    except OSError as error:
        raise ReaderGoneError(*error.args) from error


def receive_batches(sock: socket.socket) -> Iterator[Any]:
    """Yield the record batches that `send_batches` pours in; a stream that breaks off is an error."""
    with sock.makefile("rb") as file:
        if not file.peek(1):
            return  # not even a schema: a shard without rows
        try:
            yield from pa.ipc.open_stream(pa.PythonFile(_CompleteStream(file), "r"))
        except (pa.ArrowInvalid, OSError) as error:
            raise _broken_off() from error


class _CompleteStream:
    """A file that refuses to end in the middle.

    Arrow takes an end between two batches for the end of the stream; but a stream that ends without its
    mark is one whose sender died, and the rows that are missing would be lost without a word.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.closed = False

    def read(self, size: int) -> bytes:
        data: bytes = self._file.read(size)
        if len(data) < size:
            raise OSError("the stream broke off")
        return data

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def _broken_off() -> DataError:
    return DataError(
        "The rows of the shard must come whole. Received: an end in the middle of them.",
        fix="See the Spark task's own error: it ended before all rows were handed over.",
    )
