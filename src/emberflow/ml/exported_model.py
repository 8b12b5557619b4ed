"""The SavedModel that the chief exports after a training, as bytes: the driver saves it without TensorFlow."""

import contextlib
import io
import tempfile
import zipfile
from pathlib import Path
from typing import Any

# Of a model's file. Above it the driver exports by itself: the same weights would travel twice.
LIMIT = 64 << 20


def exported(model: Any, file_bytes: int) -> bytes:
    """Return the SavedModel of a Keras model; nothing where it is large or cannot be exported.

    Args:
        model: The trained model.
        file_bytes: The size of its ``.keras`` file.
    """
    if file_bytes > LIMIT:
        return b""
    # A model that cannot be exported can still be trained; whoever saves it gets the error of the driver's own try.
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "saved_model"
        model.export(str(folder), verbose=False)
        return _archive_of(folder)
    return b""


def write_exported(saved_model: bytes, folder: Path) -> None:
    """Write what `exported` returned."""
    with zipfile.ZipFile(io.BytesIO(saved_model)) as archive:
        archive.extractall(folder)


def _archive_of(folder: Path) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:  # which does not compress: weights hardly get smaller
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return file.getvalue()
