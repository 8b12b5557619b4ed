"""What a source of rows raised, as one of our errors: its kind and text, a remedy, and whether a restart may help."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from emberflow.errors import DataError, EmberflowError, StorageError

# Errors of a network or of a store that may be gone in a minute; all others would only come again.
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
# The same of clients of object stores whose exceptions are no OSErrors: botocore, aiohttp, requests, urllib3.
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
    """Tell whether the network or the store is to blame, so that the same read may succeed later."""
    return any(_may_pass(each) for each in _chain(error))


def translated_error(error: Exception, name: str) -> EmberflowError:
    """Return what went wrong while the rows of ``data[name]`` were read as one of our errors."""
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
        fix="Correct or leave out the rows or files that this names; reading them alone shows it too.",
    )


@contextmanager
def translated_errors(name: str) -> Iterator[None]:
    """Raise what the block raises as one of our errors, which the driver can name."""
    try:
        yield
    except EmberflowError:
        raise
    except Exception as error:
        raise translated_error(error, name) from error


def remedy_of(error: BaseException) -> str:
    """Return what to do about files that cannot be read."""
    if is_transient(error):
        return (
            "Check that the executors reach the storage. Pass max_restarts=1 to have the run start again by "
            "itself after such an error."
        )
    if isinstance(error, FileNotFoundError):
        return (
            "Put the files on storage that all executors share (hdfs://, s3://, a network mount), and keep them "
            "there until the run is over."
        )
    if isinstance(error, PermissionError):
        return "Let the user that the executors run as read the files, such as by chmod -R a+rX."
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
