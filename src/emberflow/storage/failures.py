"""The errors of all storage drivers, by cause: what each is called, its remedy, and whether it may pass by itself.

A driver's exception is found by its class and text, and by those of its causes: hdfs-native reports most of
what a NameNode refuses as RuntimeError with Hadoop's class in its text, and s3fs hides S3's error code behind a
class of Python.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from emberflow.errors import StorageError


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One cause.

    Attributes:
        signs: What its exceptions are called or say, in any driver.
        problem: What went wrong, in words.
        fix: What to do about it.
        may_pass: Whether the same call may succeed later.
    """

    signs: re.Pattern[str]
    problem: str
    fix: str
    may_pass: bool = False


def _failure(signs: str, problem: str, fix: str, *, may_pass: bool = False) -> Failure:
    return Failure(signs=re.compile(signs, re.IGNORECASE), problem=problem, fix=fix, may_pass=may_pass)


FAILURES = {
    "expired": _failure(
        r"ExpiredToken|RequestExpired|TokenRefreshRequired|ExpiredTokenException|token .*expired|"
        r"\bInvalidToken\b|token .*can't be found in cache|CredentialRetrievalError",
        "The key or token has expired or is no longer valid",
        "Get a new one (fs.s3a.session.token, AWS_SESSION_TOKEN, or a delegation token), and start again.",
    ),
    "kerberos": _failure(
        r"GSSAPI|Kerberos|SASL|ticket expired|SIMPLE authentication is not enabled",
        "The store wants a valid Kerberos ticket or delegation token",
        "Run `kinit`, or pass a keytab to spark-submit (--principal, --keytab), and start again.",
    ),
    "wrong_key": _failure(
        r"InvalidAccessKeyId|SignatureDoesNotMatch|AuthFailure|NoCredentialsError|PartialCredentialsError|"
        r"Unable to locate credentials|DefaultCredentialsError",
        "The store does not accept the key, or there is none",
        "Set fs.s3a.access.key and fs.s3a.secret.key (spark.hadoop.* in Spark), or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY.",
    ),
    "no_bucket": _failure(
        r"NoSuchBucket|bucket does not exist|ContainerNotFound",
        "The bucket does not exist",
        "Create the bucket, or correct its name and fs.s3a.endpoint.",
    ),
    "quota": _failure(
        r"QuotaExceeded|quota of .* is exceeded|EDQUOT|Disk quota exceeded|QuotaByStorageType",
        "The quota of a folder is exceeded",
        "Delete what is not needed, or have the quota raised: hdfs dfs -count -q -v FOLDER shows it.",
    ),
    "safe_mode": _failure(
        r"SafeModeException|NameNode is in safe mode|in safe mode",
        "HDFS is in safe mode and accepts no changes",
        "Wait until it has left it (hdfs dfsadmin -safemode get), and start again.",
        may_pass=True,
    ),
    "standby": _failure(
        r"StandbyException|not supported in state standby",
        "This NameNode is a standby",
        "Use the name service instead of one NameNode: hdfs://NAMESERVICE/..., with HADOOP_CONF_DIR set.",
        may_pass=True,
    ),
    "no_data_node": _failure(
        r"could only be (written|replicated) to 0|minReplication nodes|All nodes failed|blocks? not found|"
        r"BlocksNotFound|BlockMissing|Failed to add a datanode|No new datanode|failed to replay packets|"
        r"not enough replicas|data transfer error|DataTransferError|Failed to complete file",
        "No DataNode takes or has the blocks",
        "Check the DataNodes (hdfs dfsadmin -report), and start again.",
        may_pass=True,
    ),
    "denied": _failure(
        r"PermissionError|AccessControlException|AccessDenied|Permission denied|Forbidden|AuthorizationPermission|"
        r"Operation not permitted",
        "This user may not do that",
        "Have the path's permissions or policy changed, or use another user: HADOOP_USER_NAME without Kerberos.",
    ),
    "not_a_folder": _failure(
        r"NotADirectory|ParentNotDirectory|Not a directory|is not a directory",
        "A file is where a folder must be",
        "Choose another path, or delete the file.",
    ),
    "not_a_file": _failure(
        r"IsADirectory|path is a directory|Is a directory|PathIsDirectory",
        "A folder is where a file must be",
        "Choose the path of a file.",
    ),
    "is_there": _failure(
        r"FileExists|AlreadyExists|FileAlreadyExists|AlreadyBeingCreated|File exists|Directory not empty",
        "There is something at the path already",
        "Choose another path, or delete what is there.",
    ),
    "full": _failure(
        r"No space left|DiskOutOfSpace|ENOSPC",
        "There is no space left",
        "Free space there, or use another path.",
    ),
    "no_name_node": _failure(
        r"No NameNode hosts found|URL must contain a host|No fs\.defaultFS setting",
        "No NameNode is known for this address",
        "Write hdfs://HOST:PORT/..., or set HADOOP_CONF_DIR (dfs.nameservices, dfs.ha.namenodes.*) on every machine.",
    ),
    "no_fallback": _failure(
        r"No viewfs fallback mount found",
        "The driver wants a mount table with a fallback",
        "Set fs.viewfs.mounttable.NAME.linkFallback (spark.hadoop.* in Spark) to a folder of HDFS, for paths without "
        "a mount; or write the hdfs:// address itself.",
    ),
    "unreachable": _failure(
        r"Connection ?refused|failed to lookup address|Name or service not known|Temporary failure in name|"
        r"EndpointConnectionError|ConnectTimeout|ReadTimeout|Connection ?reset|ConnectionClosed|Broken pipe|"
        r"ConnectionAborted|RPC listener disconnected|timed out|TimeoutError|No route to host|unreachable|"
        r"NewConnectionError|ServiceUnavailable|SlowDown|InternalError|unexpected end of file|early eof",
        "The store does not answer",
        "Check host and port (fs.defaultFS, fs.s3a.endpoint), and that this machine reaches them.",
        may_pass=True,
    ),
}  # the order counts: the first that matches is taken


def failure_of(error: BaseException) -> Failure | None:
    """Return what a driver's exception means, or None for one that is not known."""
    text = "; ".join(f"{type(each).__name__}: {each}" for each in _chain(error))
    return next((failure for failure in FAILURES.values() if failure.signs.search(text)), None)


def storage_error(path: str, error: BaseException) -> StorageError:
    """Return the error for a user: the cause in words, the driver's own text, the path and the remedy."""
    failure = failure_of(error)
    problem = failure.problem if failure else "The storage failed"
    fix = (
        failure.fix
        if failure
        else "Check that the path exists, that the host responds, and that this user has permission."
    )
    found = StorageError(f"{problem}: {type(error).__name__}: {error}. Received: path={path!r}.", fix=fix)
    found.is_transient = failure is not None and failure.may_pass
    return found


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn any driver's errors into StorageError; FileNotFoundError passes, unless the bucket is missing."""
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError as error:
        if failure_of(error) is not FAILURES["no_bucket"]:
            raise
        raise storage_error(path, error) from error
    except Exception as error:
        raise storage_error(path, error) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()  # an exception that is raised again may be its own cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
