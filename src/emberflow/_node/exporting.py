"""A model as a SavedModel in storage, published atomically."""

import tempfile
from pathlib import Path
from typing import Any

from emberflow import storage


def export_model(model: Any, path: str, work_dir: Path) -> str:
    """Write the SavedModel locally, then publish it."""
    with tempfile.TemporaryDirectory(dir=work_dir) as name:
        local = Path(name) / "model"
        if hasattr(model, "export"):
            model.export(str(local), verbose=False)
        else:
            import tensorflow as tf

            tf.saved_model.save(model, str(local))
        storage.put_folder(local, path, last="saved_model.pb")
    return path
