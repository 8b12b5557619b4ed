"""Fixtures that several unit tests share."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of text and, two folders below, a file of bytes."""
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "deep" / "er" / "b.bin").write_bytes(b"\x00\xff")
    return source
