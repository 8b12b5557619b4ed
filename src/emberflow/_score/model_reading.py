"""The model that the user passed, made ready for executors: its location, its inputs and outputs."""

import hashlib
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberflow import storage
from emberflow._driver.interpreter import is_connect
from emberflow._driver.paths import resolve_path
from emberflow._driver.shipping import ship
from emberflow._score.describe import describe_model
from emberflow._score.input_matching import Inputs
from emberflow._score.keras_model import describe_keras
from emberflow._score.model_facts import ModelFacts
from emberflow._score.model_source import (
    LoadOptions,
    ModelSource,
    custom_objects_of,
    kind_of,
    ship_file,
    shipped_objects,
)
from emberflow._score.model_versions import KerasVersions, shape_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_model(
    spark: "SparkSession", model: Any, load_options: LoadOptions, inputs: Inputs, *, follows: bool = False
) -> tuple[ModelSource, ModelFacts]:
    """Return the model as executors load it, and its inputs and outputs.

    Args:
        spark: The session of the rows.
        model: What the user passed.
        load_options: How to load it.
        inputs: The columns, as the user passed them.
        follows: Whether tasks take the newest version of a folder of versions: those of a stream do.
    """
    if isinstance(model, KerasVersions):
        return _read_keras_versions(spark, model)
    kind = kind_of(model)
    if kind == "function":
        return _read_function(spark, model, inputs)
    if kind == "object":
        return _read_object(spark, model, load_options)
    return _read_path(spark, resolve_path(spark, str(model)), kind, load_options, follows=follows)


def _read_function(
    spark: "SparkSession", model: Callable[[], Any], inputs: Inputs
) -> tuple[ModelSource, ModelFacts]:
    data = ship(model, is_connect=is_connect(spark))
    takes_one = inputs is None or isinstance(inputs, str)
    source = ModelSource(kind="function", key=_key(data, takes_one), fn=data, takes_one=takes_one)
    return source, ModelFacts(kind="function", inputs=(), outputs=())


def _read_object(
    spark: "SparkSession", model: Any, load_options: LoadOptions
) -> tuple[ModelSource, ModelFacts]:
    if type(model).__module__.partition(".")[0] == "tf_keras":
        return _read_older_keras(spark, model, load_options)
    facts = describe_keras(model)
    connect = is_connect(spark)
    with tempfile.TemporaryDirectory(prefix="emberflow-") as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        name, content = ship_file(spark, path, is_connect=connect)
    objects = shipped_objects(
        custom_objects_of(model) | dict(load_options.custom_objects), is_connect=connect
    )
    # This process wrote the file from its own model: it is as trusted as this program.
    source = ModelSource(
        kind="keras", key=_key(content, objects), file=name, objects=objects, safe_mode=False
    )
    return source, facts


def _read_older_keras(
    spark: "SparkSession", model: Any, load_options: LoadOptions
) -> tuple[ModelSource, ModelFacts]:
    """Read a model object of tf_keras, whose files Keras 3 cannot load, as the SavedModel that it exports."""
    with tempfile.TemporaryDirectory(prefix="emberflow-") as folder:
        path = str(Path(folder) / "model")
        model.export(path)
        return _read_path(spark, path, "saved_model", load_options)


def _read_keras_versions(spark: "SparkSession", model: KerasVersions) -> tuple[ModelSource, ModelFacts]:
    objects = shipped_objects(custom_objects_of(model.model), is_connect=is_connect(spark))
    options = LoadOptions()
    source = ModelSource(
        kind="keras",
        key=_key(model.path, objects),
        signature=options.signature,
        tags=options.tags,
        objects=objects,
        versions=model.path,
        shape=shape_of(describe_model(spark, model.path, options)[0]),
    )
    return source, describe_keras(model.model)


def _read_path(
    spark: "SparkSession", path: str, kind: str, load_options: LoadOptions, *, follows: bool = False
) -> tuple[ModelSource, ModelFacts]:
    connect = is_connect(spark)
    folder = path
    facts, content, path = describe_model(spark, folder, load_options)
    objects = shipped_objects(load_options.custom_objects, is_connect=connect)
    if follows and path != folder:
        key = _key(folder, load_options.signature, load_options.tags)
        source = ModelSource(
            kind=kind,
            key=key,
            signature=load_options.signature,
            tags=load_options.tags,
            versions=folder,
            shape=shape_of(facts),
        )
        return source, facts
    local, name, is_archive = storage.local_path(path), "", False
    if local is not None and local.exists():
        # Executors on other hosts have no such file, so it is shipped to all.
        is_archive = local.is_dir()
        name, content = ship_file(spark, local, is_connect=connect)
    source = ModelSource(
        kind=kind,
        key=_key(content, load_options.signature, load_options.tags, objects),
        path=path,
        file=name,
        is_archive=is_archive,
        signature=load_options.signature,
        tags=load_options.tags,
        objects=objects,
    )
    return source, facts


def _key(*parts: Any) -> str:
    """Return a short text that is the same for the same model loaded in the same way."""
    return hashlib.blake2b(pickle.dumps(parts), digest_size=16).hexdigest()
