"""Keras callbacks with remote paths: during `fit` they write into the node's mirror, which is uploaded after each.

TensorFlow and Keras write local paths only. So `fit` gives these callbacks the local path of the same file, and
their own path back at its end.
"""

import copy
import functools
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras

from emberflow import storage
from emberflow._node.mirror import Mirror
from emberflow._plan import deadlines
from emberflow.strategies.data_parallel.fitting import callback_list

# Callbacks that write files, with the attribute that holds their path.
PATHS = {
    keras.callbacks.ModelCheckpoint: "filepath",
    keras.callbacks.BackupAndRestore: "backup_dir",
    keras.callbacks.CSVLogger: "filename",
    keras.callbacks.TensorBoard: "log_dir",
}
SUMMARY_WRITERS = (
    "_writers"  # of TensorBoard, by name; not public: each holds events back until it is flushed
)


def mirror_model_fit(model: Any, mirror: Mirror, *, writes: bool) -> None:
    """Let `model.fit` take callbacks with remote paths; see `mirrored_fit`."""
    if "_emberflow_mirror" not in vars(model):
        vars(model)["_emberflow_mirror"] = True
        model.fit = mirrored_fit(model.fit, mirror, writes=writes)


def mirrored_fit(fit: Callable[..., Any], mirror: Mirror, *, writes: bool) -> Callable[..., Any]:
    """Return a `fit` that takes callbacks with remote paths.

    Args:
        fit: A function with an argument `callbacks`.
        mirror: Where they write.
        writes: Whether they run on this node. On other nodes they are left out: all would write the same files.
    """

    @functools.wraps(fit)
    def mirrored(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(fit).bind(*args, **kwargs)
        callbacks = callback_list(given.arguments.get("callbacks"))
        remote = [each for each in callbacks if _is_url(path_of(each))]
        if not remote:
            return fit(*args, **kwargs)
        if not writes:
            given.arguments["callbacks"] = [each for each in callbacks if each not in remote]
            return fit(*given.args, **given.kwargs)
        given.arguments["callbacks"] = _with_uploads(callbacks, remote, mirror)
        with redirected(remote, mirror):
            return fit(*given.args, **given.kwargs)

    return mirrored


@contextmanager
def redirected(callbacks: Sequence[Any], mirror: Mirror) -> Iterator[None]:
    """Give these callbacks local paths for the length of the block; all is uploaded at its end."""
    own = [(each, _redirect(each, mirror)) for each in callbacks]
    try:
        yield
    except BaseException:
        mirror.disregard_unfinished()
        raise
    finally:
        for each, attributes in own:
            vars(each).update(attributes)
    mirror.finish()


def path_of(callback: Any) -> str:
    """Return the path that a callback writes to; empty if it is none that writes."""
    name = next((name for kind, name in PATHS.items() if isinstance(callback, kind)), None)
    return str(getattr(callback, name)) if name else ""


def with_resolved_paths(callbacks: Sequence[Any], resolve: Callable[[str], str]) -> list[Any]:
    """Return the callbacks with the URLs that their paths mean; those whose path is local stay as they are."""
    found = []
    for each in callbacks:
        path = path_of(each).rstrip("/")
        url = resolve(path) if path else ""
        if url and url != path and not storage.is_local(url):
            each = copy.copy(each)  # noqa: PLW2901 - the user's own keeps its path
            _replace(each, path, url)
        found.append(each)
    return found


class UploadChanges(keras.callbacks.Callback):  # type: ignore[misc]
    """Has uploaded what the callback before it wrote, at the end of each epoch and of the training.

    The state of BackupAndRestore is uploaded by the last of them: training that continues from it repeats nothing, so
    what the other callbacks wrote must be there.
    """

    def __init__(self, mirror: Mirror, writers: Sequence[Any], *, is_last: bool) -> None:
        super().__init__()
        self._mirror = mirror
        self._is_last = is_last
        self._writers = [each for each in writers if isinstance(each, keras.callbacks.TensorBoard)]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Upload what changed."""
        self._sync()

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Upload what changed; BackupAndRestore has deleted its files by now."""
        self._sync()

    def _sync(self) -> None:
        for each in self._writers:
            for writer in getattr(each, SUMMARY_WRITERS, {}).values():
                writer.flush()
        self._mirror.sync(versions=self._is_last)


class UploadChangesAtBatches(UploadChanges):
    """The same between steps too, where a callback saves every so many steps."""

    def __init__(self, mirror: Mirror, writers: Sequence[Any], *, is_last: bool) -> None:
        super().__init__(mirror, writers, is_last=is_last)
        self._next = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Upload what changed, if it is time to look."""
        if (now := time.monotonic()) >= self._next:
            self._next = now + deadlines.BATCH_SYNC_INTERVAL
            self._mirror.sync(versions=self._is_last)


def _with_uploads(callbacks: Sequence[Any], remote: Sequence[Any], mirror: Mirror) -> list[Any]:
    """Return the callbacks, each that writes followed by an upload: a later one may fail."""
    at_batches = any(isinstance(getattr(each, "save_freq", None), int) for each in remote)
    kind = UploadChangesAtBatches if at_batches else UploadChanges
    found = []
    for each in callbacks:
        found.append(each)
        if each in remote:
            found.append(kind(mirror, remote, is_last=each is remote[-1]))
    return found


def _redirect(callback: Any, mirror: Mirror) -> dict[str, Any]:
    """Give a callback its local path; return its own attributes."""
    url = path_of(callback).rstrip("/")
    return _replace(callback, url, str(_mirrored(callback, mirror.resolve(url), mirror)))


def _replace(callback: Any, path: str, by: str) -> dict[str, Any]:
    """Replace a path in every attribute that begins with it; return the attributes before."""
    before = {
        name: value
        for name, value in vars(callback).items()
        if isinstance(value, str | Path) and f"{value}/".startswith(f"{path}/")
    }
    vars(callback).update({name: by + str(value)[len(path) :] for name, value in before.items()})
    return before


def _mirrored(callback: Any, url: str, mirror: Mirror) -> Path:
    """Fetch what a callback reads, and return the local path of what it writes."""
    if storage.is_local(url):
        return mirror.path_of(url)
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        return mirror.versions(url)
    if isinstance(callback, keras.callbacks.TensorBoard):
        return mirror.folder(url, fetch=False)
    if isinstance(callback, keras.callbacks.CSVLogger):
        return mirror.file(url, fetch=callback.append)
    fixed, brace, _ = url.partition("{")  # names of epochs and metrics, which Keras fills in
    if not brace:
        return mirror.file(url, fetch=True)
    mirror.folder(fixed.rpartition("/")[0], fetch=False)
    return mirror.path_of(url)


def _is_url(path: str) -> bool:
    return not storage.is_local(path) or path.startswith("file:")
