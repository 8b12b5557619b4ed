"""A driver that is killed while it saves leaves the old model, the new one, or none: never a half."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import emberflow as ef

FILES = {
    "metadata/part-00000",
    "model.keras",
    "saved_model/saved_model.pb",
    "saved_model/fingerprint.pb",
    "saved_model/variables/variables.index",
    "saved_model/variables/variables.data-00000-of-00001",
}
FULL = pytest.mark.full


@pytest.mark.fault
@pytest.mark.parametrize(
    ("event", "count", "left"),
    [
        ("open", 3, 1),  # while files are copied: the old model is untouched
        pytest.param("open", 1, 1, marks=FULL),
        pytest.param("os.rename", 1, 1, marks=FULL),  # the new one is complete, but nobody was told
        pytest.param("os.rename", 2, None, marks=FULL),  # the old one has stepped aside: nothing is there
        pytest.param("open", 1000, 2, marks=FULL),  # not killed at all: the test can tell
    ],
)
def test_a_killed_save_leaves_no_half_model(event: str, count: int, left: int | None, tmp_path: Path) -> None:
    path = tmp_path / "models" / "flowers"
    path.parent.mkdir()
    command = [sys.executable, "-m", "tests.tensorflow.save_and_die", str(path), event, str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == (0 if left == 2 else -9), done.stderr
    assert path.exists() == (left is not None)
    if left is None:
        with pytest.raises(ef.StorageError):
            ef.KerasModel.load(str(path))
        return
    model = ef.KerasModel.load(str(path))
    assert model.history == {"version": [left]}
    assert zipfile.ZipFile(io.BytesIO(model.trained.keras_file)).testzip() is None
    found = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert found >= FILES
