"""Models in the process that scores: loaded once, kept for later tasks."""

import contextlib
import fcntl
import os
import pickle
import shutil
import tempfile
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emberflow import storage
from emberflow._score.input_rows import Ragged, RowGroup
from emberflow._score.keras_model import flatten, load_keras, structure_of
from emberflow._score.model_facts import Tensor
from emberflow._score.model_source import ModelSource, is_keras_file
from emberflow._score.quiet_start import start_tensorflow
from emberflow.errors import ModelError

KEPT = 3  # models in one Python process: an application that scores with many must not fill the executors' memory

COPY_PREFIX = "emberflow-model-"
COPIES = 3  # of a folder of versions, on the disk of one executor

Predict = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ModelCache:
    """The models that a process has loaded; the one that was used least recently is dropped first.

    Args:
        size: The number of models to keep.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._models: OrderedDict[tuple[str, tuple[str, ...]], Predict] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._models)

    def find(self, source: ModelSource, load: Callable[[], Predict]) -> Predict:
        """Return the model of a source; load it if it is not here."""
        key = (source.key, source.outputs)
        with self._lock:
            if key not in self._models:
                while len(self._models) >= self.size:
                    self._models.popitem(last=False)
                self._models[key] = load()
            self._models.move_to_end(key)
            return self._models[key]


# Module level: Spark reuses its Python workers between tasks, and no object of a task outlives it.
MODELS = ModelCache(KEPT)


def predictor_of(source: ModelSource, inputs: Sequence[Tensor], threads: int = 0) -> Predict:
    """Return the model as a function of arrays by name; a process loads each model once."""
    return MODELS.find(source, lambda: _load(source, inputs, threads))


def call_model(predict: Predict, group: RowGroup, rows: int | None) -> dict[str, Any]:
    """Return the model's result for the rows of a group; `rows` is the number that a call must have, if any."""
    if rows is None or rows == group.count:
        return dict(predict(group.arrays))
    more = rows - group.count
    padded = {
        name: np.concatenate([array, np.repeat(array[-1:], more, axis=0)])
        for name, array in group.arrays.items()
    }
    return {name: np.asarray(value)[: group.count] for name, value in predict(padded).items()}


def _load(source: ModelSource, inputs: Sequence[Tensor], threads: int) -> Predict:
    if source.kind == "function":
        return _function(source)
    _limit_threads(threads)
    path = local_model_path(source)
    if source.kind == "keras":
        return _keras(source, path, inputs)
    return _saved_model(source, path, inputs)


def _limit_threads(threads: int) -> None:
    """Limit TensorFlow to the cores of this task; the default is all cores of the host for each task."""
    start_tensorflow()
    import tensorflow as tf

    if threads:
        with contextlib.suppress(RuntimeError):  # TensorFlow has started already
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(max(2, threads))


def _saved_model(source: ModelSource, path: str, inputs: Sequence[Tensor]) -> Predict:
    import tensorflow as tf

    try:
        model = tf.saved_model.load(path, tags=list(source.tags))
        signature = model.signatures[source.signature]
    except Exception as error:
        raise ModelError(
            f"The SavedModel {source.path or path} cannot be loaded: {type(error).__name__}: {error}",
            fix="Check that it loads with tf.saved_model.load in the executors' version of TensorFlow "
            f"({tf.__version__}).",
        ) from error
    dtypes = {tensor.name: tensor.dtype for tensor in inputs}
    names = _own_names(source, dtypes, signature.structured_input_signature[1])
    result_names = _own_names(source, signature.structured_outputs, source.outputs)

    def predict(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        tensors = {names[name]: _to_tensor(tf, value, dtypes[name]) for name, value in arrays.items()}
        return {result_names[name]: _to_numpy(value) for name, value in signature(**tensors).items()}

    predict.model = model  # type: ignore[attr-defined]  # the signature alone does not keep the variables alive
    return predict


def _own_names(source: ModelSource, known: Iterable[str], own: Iterable[str]) -> dict[str, str]:
    """Return the second names by the first; versions differ in an only one, since Keras numbers unnamed tensors."""
    first, second = list(known), list(own)
    is_only = len(first) == len(second) == 1
    return dict(zip(first, second if source.versions and is_only else first, strict=True))


def _keras(source: ModelSource, path: str, inputs: Sequence[Tensor]) -> Predict:
    import tensorflow as tf

    objects = {name: pickle.loads(data) for name, data in source.objects.items()}
    model = load_keras(path, custom_objects=objects, safe_mode=source.safe_mode)
    model.jit_compile = False  # XLA compiles again for each number of rows
    dtypes = {tensor.name: tensor.dtype for tensor in inputs}
    arranged = structure_of(model, [tensor.name for tensor in inputs])

    def predict(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        tensors = {name: _to_tensor(tf, value, dtypes[name]) for name, value in arrays.items()}
        answer = model.predict_on_batch(arranged(tensors))
        return dict(zip(source.outputs, flatten(answer), strict=True))

    return predict


def _function(source: ModelSource) -> Predict:
    answer_of = pickle.loads(source.fn)()
    if not callable(answer_of):
        raise ModelError(
            f"The function must return a predictor, a function of arrays. Received: {type(answer_of).__name__}.",
            fix="Return a function: def load(): model = ...; return lambda x: model.predict_on_batch(x)",
        )

    def predict(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        given = {name: _plain_array(value) for name, value in arrays.items()}
        answer = answer_of(next(iter(given.values())) if source.takes_one else given)
        return _named(answer, source.outputs)

    return predict


def _named(answer: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(answer, Mapping):
        missing = [name for name in names if name not in answer]
        if missing:
            raise ModelError(
                f"The predictor must return the declared outputs. Received: {', '.join(map(str, answer))}; missing: "
                f"{', '.join(missing)}.",
                fix="Return a dictionary with all names of outputs=.",
            )
        return answer
    values = answer if isinstance(answer, tuple | list) and len(names) > 1 else [answer]
    if len(values) != len(names):
        raise ModelError(
            f"The predictor must return the declared outputs {', '.join(names)}. Received: {len(values)} values.",
            fix="Return a dictionary by name, or as many arrays as outputs= declares.",
        )
    return dict(zip(names, values, strict=True))


def _plain_array(value: Any) -> Any:
    if isinstance(value, Ragged):
        import tensorflow as tf

        return _to_tensor(tf, value, None)
    return value


def _to_tensor(tf: Any, value: Any, dtype: str | None) -> Any:
    if isinstance(value, Ragged):
        return tf.RaggedTensor.from_nested_row_splits(value.values, value.splits, validate=False)
    tensor = tf.convert_to_tensor(value, tf.string) if value.dtype == object else tf.convert_to_tensor(value)
    return tf.cast(tensor, tf.bfloat16) if dtype == "bfloat16" else tensor


def _to_numpy(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") and not hasattr(value, "nested_row_splits") else value


def local_model_path(source: ModelSource) -> str:
    """Return the model's path on this host's disk; the first process of an executor copies it there."""
    place = cache_folder() / f"{COPY_PREFIX}{source.key}"
    if source.file:
        from pyspark import SparkFiles

        file = Path(SparkFiles.get(source.file))
        # Not beside the file: a standalone Worker keeps the folder of an executor's files after the application.
        return str(_fill_once(place, lambda to: _unzip(file, to)) if source.is_archive else file)
    if (local := storage.local_path(source.path)) is not None:
        return str(local)
    if is_keras_file(source.path):
        copy = _fill_once(place, lambda to: _get_file(source.path, to)) / Path(source.path).name
    else:
        copy = _fill_once(place, lambda to: storage.get_folder(source.path, to))
    if source.versions:
        _remove_copies_before(place)
    return str(copy)


def _remove_copies_before(newest: Path) -> None:
    """Delete the copies of older versions, which would fill the disk; a slow task may still load the last ones."""
    family = newest.name.rpartition("-")[0]
    copies = [path for path in newest.parent.glob(f"{family}-*") if path.name.rpartition("-")[2].isdigit()]
    for old in sorted(copies, key=lambda path: int(path.name.rpartition("-")[2]))[:-COPIES]:
        shutil.rmtree(old, ignore_errors=True)
        old.with_name(f"{old.name}.lock").unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return a folder that this executor's processes share and Spark deletes with the executor."""
    local = (os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()).split(",")[0]
    return Path(local) if Path(local).is_dir() else Path(tempfile.gettempdir())


def _unzip(file: Path, to: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        archive.extractall(to)


def _get_file(path: str, to: Path) -> None:
    with storage.open_file(path) as source, (to / Path(path).name).open("wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)


def _fill_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Return the folder, filled by the first process that needs it; the others wait for it."""
    with _locked(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            aside = folder.with_name(f"{folder.name}.tmp")
            shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
            aside.mkdir(mode=0o700, parents=True)
            fill(aside)
            aside.rename(folder)
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
