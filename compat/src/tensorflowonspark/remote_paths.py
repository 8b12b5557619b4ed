"""Remote paths in programs whose TensorFlow opened them itself: today's opens local paths, and gs:// only."""

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from emberflow.errors import StorageError
from emberflow_compat.module_patches import when_imported

SIGN = "File system scheme"  # in TensorFlow's error for a path that it cannot open
FILE_IO = "tensorflow.python.lib.io.file_io"
KERAS_3_H5 = "keras.src.legacy.saving.legacy_h5_format"
QUESTIONS = ("FileExists", "IsDirectory")  # to TensorFlow's file systems
EXPLAINS = "_explains_remote_paths"
# One slash: Keras may have dropped the other.
REMOTE = re.compile(r"\b(adl|abfss?|dbfs|hdfs|oss|s3[an]?|swift|viewfs|wasbs?):/")
OPENERS = ("h5py", "keras", "shutil", "tensorflow", "tf_keras", "zipfile")  # take such a path for a local one


def is_remote(path: str) -> bool:
    """Tell whether a path is on a storage that TensorFlow cannot open."""
    return REMOTE.match(path) is not None


@contextmanager
def explained_paths() -> Iterator[None]:
    """Raise TensorFlow's error for a remote path with what to change."""
    when_imported(FILE_IO, _patch_questions)
    when_imported(KERAS_3_H5, _patch_h5)
    try:
        yield
    except Exception as error:
        if isinstance(error, StorageError) or not _is_of_remote_path(error):
            raise
        raise _explained(error) from error


def _is_of_remote_path(error: Exception) -> bool:
    """Tell whether TensorFlow, or what Keras opens files with, could not open a remote path."""
    if SIGN in str(error):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    module = str(frames[-1].f_globals.get("__name__", "")) if frames else ""
    return module.partition(".")[0] in OPENERS and REMOTE.search(str(error)) is not None


def _explained(error: Exception) -> StorageError:
    return StorageError(
        f"TensorFlow must get a local path. Received: {type(error).__name__}: {error}",
        fix="Pass it paths below ctx.mirror(folder), a local folder that is kept equal with the remote one, where "
        "the program has ctx.absolute_path(folder); or let Spark read the rows: dfutil.loadTFRecords, "
        "InputMode.SPARK.",
    )


def _patch_questions(module: Any) -> None:
    """Let TensorFlow's own questions about a remote path fail, too.

    It takes its error for a "no": `tf.train.latest_checkpoint` would find no checkpoint, and the program would train
    from the start without a word.
    """
    for name in QUESTIONS:
        asked = getattr(module._pywrap_file_io, name)  # noqa: SLF001 - below what swallows the error
        if not hasattr(asked, EXPLAINS):
            setattr(module._pywrap_file_io, name, _answering(asked))  # noqa: SLF001


def _answering(asked: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def ask(path: Any) -> Any:
        try:
            return asked(path)
        except Exception as error:
            if SIGN not in str(error):
                raise
            raise _explained(error) from error

    setattr(ask, EXPLAINS, True)
    return ask


def _patch_h5(module: Any) -> None:
    """Let Keras 3 refuse to save an HDF5 file remotely: it would make a local folder "hdfs:" and save it there."""
    save = module.save_model_to_hdf5
    if hasattr(save, EXPLAINS):
        return

    def save_locally(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        if is_remote(str(filepath)):
            raise _explained(ValueError(f"filepath={str(filepath)!r} in model.save"))
        save(model, filepath, *args, **kwargs)

    setattr(save_locally, EXPLAINS, True)
    module.save_model_to_hdf5 = save_locally
