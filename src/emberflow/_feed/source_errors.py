"""Errors of a source of rows as errors of emberflow: type and text, a fix, and whether a restart may help."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from emberflow.errors import DataError, EmberflowError, StorageError

# Errors of a network or of a store that are transient; all others would occur again.
_TRANSIENT = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.EREMOTEIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
# The same for clients of object stores whose exceptions are no OSErrors: botocore, aiohttp, requests, urllib3.
_TRANSIENT_NAMES = frozenset(
    {
        "ClientConnectionError",
        "ClientPayloadError",
        "ConnectTimeoutError",
        "EndpointConnectionError",
        "HTTPClientError",
        "ReadTimeoutError",
        "ServiceUnavailableError",
    }
)


def is_transient(error: BaseException) -> bool:
    """Tell whether the cause is the network or the store, so that the same read may succeed later."""
    return any(_may_pass(each) for each in _chain(error))


def translated_error(error: Exception, name: str) -> EmberflowError:
    """Return an error of emberflow for one that occurred while the rows of ``data[name]`` were read."""
    if isinstance(error, EmberflowError):
        return error
    problem = (
        f"The rows of data[{name!r}] must be readable on the executor. "
        f"Received: {type(error).__name__}: {error}."
    )
    if isinstance(error, OSError) or is_transient(error):
        return StorageError(problem, fix=remedy_of(error))
    if isinstance(error, MemoryError):
        return DataError(problem, fix="Raise spark.executor.memoryOverhead, or use more workers.")
    return DataError(
        problem,
        fix="Correct or remove the rows or files that this names; reading them alone reproduces it.",
    )


@contextmanager
def translated_errors(name: str) -> Iterator[None]:
    """Raise errors of the block as errors of emberflow."""
    try:
        yield
    except EmberflowError:
        raise
    except Exception as error:
        raise translated_error(error, name) from error


def remedy_of(error: BaseException) -> str:
    """Return the fix for files that cannot be read."""
    if is_transient(error):
        return (
            "Check that the executors reach the storage. Pass max_restarts=1 to restart the run "
            "after such an error."
        )
    if isinstance(error, FileNotFoundError):
        return (
            "Put the files on storage that all executors share (hdfs://, s3://, a network mount), and keep them "
            "there until the run is over."
        )
    if isinstance(error, PermissionError):
        return "Give the user of the executors permission to read the files, as with chmod -R a+rX."
    if isinstance(error, OSError) and error.errno == errno.EIO:
        return "Check the disk for errors; the kernel's log of that host (dmesg) names it."
    return "Check the path, the files, and that the executors may read them; write a damaged file again."


def _chain(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    while at is not None:
        yield at
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT:
        return True
    return any(kind.__name__ in _TRANSIENT_NAMES for kind in type(error).__mro__)
