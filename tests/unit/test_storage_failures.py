"""What drivers raise, and the remedy that each cause gets."""

import errno
from pathlib import Path

import pytest

from emberflow.errors import StorageError
from emberflow.storage.failures import FAILURES, failure_of, storage_error, translated

HDFS = "org.apache.hadoop.hdfs"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError("Connection refused (os error 111)"), "unreachable"),
        (OSError("failed to lookup address information: Name or service not known"), "unreachable"),
        (RuntimeError('InvalidArgument("No NameNode hosts found")'), "no_name_node"),
        (RuntimeError('InvalidArgument("No fs.defaultFS setting found")'), "no_name_node"),
        (RuntimeError('InvalidArgument("No viewfs fallback mount found")'), "no_fallback"),
        (RuntimeError(f'RPCError("{HDFS}.server.namenode.SafeModeException", "Name node is in")'), "safe_mode"),
        (RuntimeError(f'RPCError("{HDFS}.protocol.NSQuotaExceededException", "The NameSpace quota")'), "quota"),
        (RuntimeError(f'RPCError("{HDFS}.protocol.DSQuotaExceededException", "The DiskSpace quota")'), "quota"),
        (RuntimeError('RPCError("org.apache.hadoop.security.AccessControlException", "user=x")'), "denied"),
        (RuntimeError('RPCError("org.apache.hadoop.ipc.StandbyException", "READ is not supported")'), "standby"),
        (RuntimeError('RPCError("org.apache.hadoop.fs.ParentNotDirectoryException", "/x")'), "not_a_folder"),
        (RuntimeError('RPCError("java.io.IOException", "could only be written to 0 of the 1")'), "no_data_node"),
        (RuntimeError('DataTransferError("All nodes failed")'), "no_data_node"),
        (RuntimeError('SASLError("token (owner=x) is expired")'), "expired"),
        (RuntimeError('GSSAPIError(GSS_S_CRED_UNAVAIL, 0, "No Kerberos credentials available")'), "kerberos"),
        (OSError(errno.ENOSPC, "No space left on device"), "full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "quota"),
        (PermissionError(errno.EACCES, "Permission denied"), "denied"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory"), "not_a_folder"),
        (IsADirectoryError(errno.EISDIR, "Is a directory"), "not_a_file"),
    ],
)  # fmt: skip
def test_a_drivers_exception_is_known_by_its_cause(error: Exception, cause: str) -> None:
    assert failure_of(error) is FAILURES[cause]
    found = storage_error("hdfs://name/x", error)
    assert found.fix == FAILURES[cause].fix
    assert found.is_transient is FAILURES[cause].may_pass
    assert "Received: path='hdfs://name/x'" in found.problem


def test_an_unknown_exception_keeps_its_words() -> None:
    with (
        pytest.raises(StorageError, match=r"The storage failed: KeyError: 'x'") as caught,
        translated("s3://b/x"),
    ):
        raise KeyError("x")
    assert not caught.value.is_transient


def test_a_missing_file_is_no_failure_of_the_storage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), translated("x"):
        (tmp_path / "none").read_bytes()


def test_an_exception_that_is_its_own_cause_is_read_once() -> None:
    first, second = OSError("Connection refused"), ValueError("meanwhile")
    first.__cause__, second.__cause__ = second, first
    assert failure_of(second) is FAILURES["unreachable"]
