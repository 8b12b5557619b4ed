"""What changed between the releases of TensorFlow 2, for programs that must not know."""

import tempfile
from pathlib import Path
from typing import Any

from emberflow import storage
from tensorflowonspark.remote_paths import is_remote


def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
    """Export a Keras model as a SavedModel; call it on all nodes, since a model of a strategy is saved by all.

    Args:
        model: Of tf_keras or Keras 3.
        export_dir: Where the chief's goes, also a remote folder; nobody reads those of the others.
        is_chief: Whether this node leads.
    """
    is_uploaded = is_chief and is_remote(export_dir)
    with tempfile.TemporaryDirectory() as name:
        folder = export_dir if is_chief and not is_uploaded else str(Path(name, "model"))
        if type(model).__module__.startswith("keras."):
            model.export(folder)
        else:
            model.save(folder, save_format="tf")
        if is_uploaded:
            storage.put_folder(folder, export_dir, last="saved_model.pb")


def disable_auto_shard(options: Any) -> None:
    """Have each node take all rows of its dataset: they are its own already."""
    import tensorflow as tf

    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF


def is_gpu_available() -> bool:
    """Tell whether TensorFlow sees a GPU."""
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
