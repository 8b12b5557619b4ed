"""S3 by s3fs, against a server of moto: what goes up and comes down, and what each refusal tells."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from emberflow import storage
from emberflow.errors import StorageError
from emberflow.storage.failures import FAILURES, failure_of
from emberflow.storage.object_folders import IN_PROGRESS, MANIFEST
from tests.storage.conftest import KEYS, files_of

FORKED_WITHIN = 60  # seconds: a child that hangs is killed


def test_a_folder_goes_to_s3_as_plain_keys_and_back(s3: str, folder: Path, tmp_path: Path) -> None:
    target = storage.join(s3, "models", "mnist", "1")
    storage.put_folder(folder, target, last="saved_model.pb")
    names = {file.path[len(target) + 1 :] for file in storage.list_files(target)}
    assert names == {*files_of(folder), MANIFEST}
    storage.get_folder(target, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(folder)
    assert storage.list_folder(storage.join(s3, "models")) == [storage.join(s3, "models", "mnist")]
    assert storage.is_folder(target)
    assert storage.glob(storage.join(s3, "models", "*", "*", "*.pb")) == [
        storage.join(target, "saved_model.pb")
    ]
    storage.remove_folder(target, first="saved_model.pb")
    assert storage.list_files(s3) == []
    assert not storage.exists(target)


def test_a_folder_on_s3_is_replaced_by_another(s3: str, folder: Path, tmp_path: Path) -> None:
    target = storage.join(s3, "model")
    storage.put_folder(folder, target)
    (folder / "variables" / "large").unlink()
    (folder / "saved_model.pb").write_text("another graph")
    storage.put_folder(folder, target)
    storage.get_folder(target, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(folder)
    assert len(storage.list_files(s3)) == len(files_of(folder)) + 1, "nothing is left beside it"
    with pytest.raises(StorageError, match="which exists"):
        storage.put_folder(folder, target, overwrite=False)


def test_a_file_on_s3_is_written_renamed_and_left_alone_when_its_writer_fails(s3: str) -> None:
    path = storage.join(s3, "a", "b")
    storage.write_bytes(path, b"1")
    storage.rename(path, storage.join(s3, "c"))
    assert storage.read_bytes(storage.join(s3, "c")) == b"1"
    assert not storage.exists(path)
    with suppress(ZeroDivisionError), storage.open_file(path, "wb") as file:
        file.write(bytes(6 << 20))
        raise ZeroDivisionError
    assert not storage.exists(path), "half a file is never published"


@pytest.mark.fault
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_folder_is_never_published_over_a_file(s3: str, folder: Path, overwrite: bool) -> None:
    path = storage.join(s3, "file")
    storage.write_bytes(path, b"1")
    with pytest.raises(StorageError, match="which is a file") as caught:
        storage.put_folder(folder, path, overwrite=overwrite)
    assert path in str(caught.value)
    assert storage.list_folder(s3) == [path]
    assert storage.read_bytes(path) == b"1"


def test_a_folder_is_never_published_as_a_whole_bucket(s3: str, folder: Path) -> None:
    with pytest.raises(StorageError, match="the bucket itself"):
        storage.put_folder(folder, s3)


@contextmanager
def refusing_store(code: str, status: int) -> Iterator[str]:
    """An S3 server that answers every request with one error."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # the client waits to be told to send a body

        def answer(self) -> None:
            body = f"<Error><Code>{code}</Code><Message>said by S3: {code}</Message></Error>".encode()
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.fault
@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        ("ExpiredToken", 400, "expired"),
        ("InvalidAccessKeyId", 403, "wrong_key"),
        ("SignatureDoesNotMatch", 403, "wrong_key"),
        ("AccessDenied", 403, "denied"),
        ("NoSuchBucket", 404, "no_bucket"),
    ],
)
def test_each_refusal_of_s3_has_its_own_remedy(folder: Path, code: str, status: int, cause: str) -> None:
    pytest.importorskip("s3fs")
    target = "s3a://box/model"
    before = storage.current_settings()
    with refusing_store(code, status) as endpoint:
        storage.apply_settings(storage.StorageSettings(hadoop=KEYS | {"fs.s3a.endpoint": endpoint}))
        try:
            for call in (
                lambda: storage.put_folder(folder, target),
                lambda: storage.write_bytes(target, b"1"),
            ):
                with pytest.raises(StorageError, match=code) as caught:
                    call()
                assert caught.value.fix == FAILURES[cause].fix
                assert caught.value.is_transient is FAILURES[cause].may_pass
                assert target in str(caught.value)
        finally:
            storage.apply_settings(before)


def test_a_bucket_that_does_not_exist_is_named_and_not_made(s3: str, folder: Path) -> None:
    missing = storage.join(s3 + "-other", "model")
    with pytest.raises(StorageError, match="The bucket does not exist") as caught:
        storage.put_folder(folder, missing)
    assert missing in str(caught.value)
    with pytest.raises(StorageError, match="The bucket does not exist"):
        storage.write_bytes(missing, b"1")
    assert not storage.exists(s3 + "-other")


def test_an_endpoint_that_does_not_answer_is_named(folder: Path) -> None:
    pytest.importorskip("s3fs")
    before = storage.current_settings()
    settings = KEYS | {"fs.s3a.endpoint": "http://127.0.0.1:1"}
    storage.apply_settings(storage.StorageSettings(hadoop=settings))
    try:
        with pytest.raises(StorageError, match=r"does not answer.*127\.0\.0\.1:1") as caught:
            storage.read_bytes("s3a://box/x")
    finally:
        storage.apply_settings(before)
    assert caught.value.is_transient


@pytest.mark.fault
def test_an_upload_that_is_cut_off_leaves_a_folder_that_readers_refuse(
    s3: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is gone from one file on: nothing can be cleaned up either."""
    import s3fs

    target = storage.join(s3, "model")
    real, is_gone = s3fs.S3FileSystem._call_s3, []

    async def call(self: Any, method: str, *args: Any, **options: Any) -> Any:
        if is_gone or str(options.get("Key", "")).endswith("variables/7"):
            is_gone.append(True)
            raise ConnectionResetError("Connection reset by peer")
        return await real(self, method, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(s3fs.S3FileSystem, "_call_s3", call)
        with pytest.raises(StorageError, match="does not answer"):
            storage.put_folder(folder, target)
    assert storage.exists(storage.join(target, IN_PROGRESS))
    with pytest.raises(StorageError, match="not ended, or was interrupted"):
        storage.get_folder(target, tmp_path / "back")
    storage.put_folder(folder, target, overwrite=False)
    storage.get_folder(target, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(folder)


@pytest.mark.fault
def test_processes_forked_after_s3_was_used_use_it_too(s3: str) -> None:
    """s3fs has a thread of its own, which no forked process has."""
    path = storage.join(s3, "x")
    storage.write_bytes(path, b"1")
    for _ in range(3):
        child = os.fork()
        if child == 0:
            signal.alarm(FORKED_WITHIN)
            os._exit(0 if storage.read_bytes(path) == b"1" else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert storage.read_bytes(path) == b"1"


def test_missing_keys_are_recognised() -> None:
    exceptions = pytest.importorskip("botocore.exceptions")
    assert failure_of(exceptions.NoCredentialsError()) is FAILURES["wrong_key"]
