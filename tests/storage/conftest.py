"""An S3 server of moto on loopback, and the settings that lead to it."""

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emberflow import storage

KEYS = {"fs.s3a.access.key": "testing", "fs.s3a.secret.key": "testing"}


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    """The URL of an S3 server for the tests of one file."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line per request otherwise
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str) -> Iterator[str]:
    """A new bucket, ``s3a://NAME``, with the settings of this process that lead to it."""
    before = storage.current_settings()
    storage.apply_settings(storage.StorageSettings(hadoop=KEYS | {"fs.s3a.endpoint": s3_endpoint}))
    bucket = f"s3a://box-{uuid.uuid4().hex[:12]}"
    fs, name = storage.file_system(bucket)
    fs.mkdir(name)
    yield bucket
    storage.apply_settings(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of several sizes, one of them larger than what S3 takes in one part."""
    source = tmp_path / "source"
    (source / "variables").mkdir(parents=True)
    (source / "saved_model.pb").write_text("graph")
    (source / "variables" / "large").write_bytes(bytes(range(256)) * 40_000)
    for number in range(20):
        (source / "variables" / f"{number}").write_text(str(number))
    return source


def files_of(folder: Path) -> dict[str, Any]:
    """Return the content of all files of a local folder by their names."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
