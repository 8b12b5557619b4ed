"""Every option that names storage, and where its path becomes a URL: no path is opened as it was typed.

A new option of this kind fails here until it is in the table: resolve it (`_driver/paths.py::resolve_path`) and name
the function that does, or say why it is the driver's own.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import emberflow
from emberflow import _names, tfrecord
from emberflow._node.context import Context
from emberflow.cli.main import app
from emberflow.ml import FunctionEstimator, KerasEstimator, KerasModel, SavedModelTransformer

SOURCE = Path(emberflow.__file__).parent
RESOLVERS = {
    "resolve_path",
    "with_resolved_paths",
    "with_resolved_files",
    "with_resolved_path",
    "path_rules_of",
    "absolute_path",
}
LOOKS_LIKE_STORAGE = re.compile(
    r"path|dir$|^callbacks$|folder|checkpoint|publish|tensorboard$|^model$|target|^source|output|file|^rows$|^data$|labels|url|location|^record$|^validation$|^evaluation$",
    re.IGNORECASE,
)

OWN = "the driver's own: "
SPARK = "Spark resolves it: "
RESOLVED = {
    "run.data": "_driver/row_routing.py::with_resolved_files",
    "run.tensorboard": "_driver/paths.py::with_resolved_paths",
    "run.checkpoint_dir": "_driver/paths.py::with_resolved_paths",
    "run.record": "_driver/paths.py::with_resolved_paths",
    "run_parallel.record": "_driver/paths.py::record_path",
    "cluster.record": "_driver/paths.py::with_resolved_paths",
    "KerasEstimator.record": "_driver/paths.py::with_resolved_paths",
    "FunctionEstimator.record": "_driver/paths.py::with_resolved_paths",
    "emberflow train.record": "_driver/paths.py::with_resolved_paths",
    "emberflow runs.path": "cli/runs.py::read_runs",
    "emberflow ui.path": "cli/ui.py::_served",
    "run.spool_dir": OWN + "local disk of each host",
    "cluster.tensorboard": "cluster.py::cluster",
    "cluster.checkpoint_dir": "cluster.py::cluster",
    "cluster.spool_dir": OWN + "local disk of each host",
    "predict.model": "_score/model_reading.py::read_model",
    "predict.outputs": OWN + "names of columns",
    "Parquet.path": "_driver/row_routing.py::with_resolved_path",
    "TFRecords.path": "_driver/row_routing.py::with_resolved_path",
    "tfrecord.read.path": "tfrecord/api.py::read",
    "tfrecord.write.path": "tfrecord/api.py::write",
    "tfrecord.from_example.data": OWN + "a column",
    "Cluster.train.data": OWN + "a DataFrame or an RDD",
    "Cluster.infer.data": OWN + "a DataFrame or an RDD",
    "Cluster.train_stream.checkpoint": "live_cluster.py::_start_stream",
    "KerasEstimator.model": OWN + "a Keras model or a function",
    "KerasEstimator.setModel.model": OWN + "a Keras model or a function",
    "KerasEstimator.tensorboardDir": "ml/training_description.py::describe_training",
    "KerasEstimator.callbacks": "ml/training_description.py::_shipped_callbacks",
    "KerasEstimator.checkpointSteps": OWN + "a count",
    "KerasEstimator.checkpointDir": "_driver/paths.py::with_resolved_paths",
    "KerasEstimator.spoolDir": OWN + "local disk of each host",
    "KerasEstimator.save.path": "ml/saving.py::save",
    "KerasEstimator.load.path": "ml/keras_saving.py::load_estimator",
    "KerasEstimator.fitStream.checkpointDir": "ml/stream_fit.py::fit_stream",
    "KerasEstimator.fitStream.publishTo": "ml/stream_fit.py::fit_stream",
    "KerasEstimator.fitStream.publishEvery": OWN + "a count",
    "KerasEstimator.fitFiles.source": "ml/file_fit.py::fit_files",
    "KerasEstimator.fitFiles.validation": "ml/file_fit.py::fit_files",
    "KerasEstimator.evaluation": "ml/training_description.py::describe_training",
    "KerasModel.save.path": "ml/saving.py::save",
    "KerasModel.load.path": "ml/keras_saving.py::load_model",
    "KerasModel.publish.publishTo": "ml/publishing.py::publish_next",
    "KerasModel.plot.path": OWN + "a picture",
    "FunctionEstimator.outputs": OWN + "names of columns",
    "FunctionEstimator.tensorboardDir": "_driver/paths.py::with_resolved_paths",
    "FunctionEstimator.checkpointDir": "_driver/paths.py::with_resolved_paths",
    "FunctionEstimator.spoolDir": OWN + "local disk of each host",
    "FunctionEstimator.save.path": "ml/saving.py::save",
    "FunctionEstimator.load.path": "ml/function_estimator.py::load",
    "SavedModelTransformer.path": "ml/saved_model_transformer.py::_transform",
    "SavedModelTransformer.outputs": OWN + "names of columns",
    "SavedModelTransformer.save.path": "ml/saving.py::save",
    "SavedModelTransformer.load.path": "ml/saved_model_transformer.py::load",
    "Context.absolute_path.path": "_node/storage_access.py::absolute_path",
    "Context.open.path": "_node/storage_access.py::open",
    "Context.export.path": "_node/storage_access.py::export",
    "Context.mirror.path": "_node/storage_access.py::mirror",
    "Context.export.model": OWN + "a model",
    "Context.distribute.model": OWN + "a model",
    "Context.periodic.model": OWN + "a model",
    "Context.coordinate.rows": OWN + "a data set",
    "Context.coordinate.validation": OWN + "a data set",
    "emberflow train.rows": SPARK + "or _driver/row_routing.py::with_resolved_path for --input-mode files",
    "emberflow train.output": "ml/saving.py::save",
    "emberflow train.checkpoint_dir": "_driver/paths.py::with_resolved_paths",
    "emberflow train.tensorboard_dir": "ml/training_description.py::describe_training",
    "emberflow train.evaluation": "ml/training_description.py::describe_training",
    "emberflow train.spool_dir": OWN + "local disk of each host",
    "emberflow train.source_format": OWN + "the name of a format",
    "emberflow predict.rows": SPARK + "or cli/file_rows.py::rows_from_files for --input-mode files",
    "emberflow predict.model": "cli/predict.py::scored_by",
    "emberflow predict.output": SPARK + "it writes the rows",
    "emberflow predict.outputs": OWN + "names of columns",
    "emberflow predict.output_format": OWN + "the name of a format",
    "emberflow predict.source_format": OWN + "the name of a format",
    "emberflow show.model": "cli/show.py::run_show",
    "emberflow convert.source": "cli/convert.py::_convert",
    "emberflow convert.target": "cli/convert.py::_convert",
    "emberflow convert.labels": "cli/convert.py::_convert",
    "emberflow demo.output": OWN + "a folder for pictures on this machine",
}
FOLDERS_OF_USERS = ("", "cli", "ml", "tfrecord")  # what a user calls; other folders receive resolved paths
RECEIVES = {
    "tfrecord/convert.py": "cli/convert.py",
    "tfrecord/file_formats.py": "cli/convert.py",
    "tfrecord/idx_files.py": "cli/convert.py and tfrecord/idx_frame.py",
    "tfrecord/input_files.py": "tfrecord/spark_source.py and _driver/row_routing.py",
    "tfrecord/tfrecords.py": "_driver/row_routing.py",
    "tfrecord/journal.py": "tfrecord/spark_source.py",
    "tfrecord/publish.py": "tfrecord/spark_source.py",
    "tfrecord/record_files.py": "tfrecord/spark_source.py",
    "tfrecord/spark_streaming.py": "tfrecord/spark_source.py",
    "tfrecord/spark_writer.py": "tfrecord/spark_source.py",
    "tfrecord/task_output.py": "tfrecord/spark_source.py",
    "ml/evaluation.py": "ml/training_description.py",
    "ml/function_training.py": "_node/storage_access.py",
}


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in ("run", "cluster", "predict", "run_parallel", "Parquet", "TFRecords"):
        yield name, getattr(emberflow, name)
    for name in ("KerasEstimator", "FunctionEstimator", "SavedModelTransformer"):
        yield name, getattr(emberflow, name)
    for name in tfrecord.__all__:
        yield f"tfrecord.{name}", getattr(tfrecord, name)
    stages = (KerasEstimator, KerasModel, FunctionEstimator, SavedModelTransformer)
    for kind in (emberflow.Cluster, *stages, Context):
        for name, value in inspect.getmembers(kind, callable):
            function = getattr(value, "__func__", value)
            is_ours = str(getattr(function, "__module__", "")).startswith("emberflow")
            if is_ours and not name.startswith("_") and not re.match(r"[sg]et[A-Z]", name):
                yield f"{kind.__name__}.{name}", function
    yield "KerasEstimator.setModel", KerasEstimator.setModel
    for command in app.registered_commands:
        assert command.callback is not None
        yield f"emberflow {command.name or command.callback.__name__}", command.callback


def options() -> set[str]:
    """Return the options whose name or type says that they may name storage."""
    return {
        f"{name}.{parameter.name}"
        for name, function in callables()
        for parameter in inspect.signature(function).parameters.values()
        if LOOKS_LIKE_STORAGE.search(parameter.name) and "bool" not in str(parameter.annotation)
    }


@cache
def tree_of(file: str) -> ast.Module:
    return ast.parse((SOURCE / file).read_text())


def resolves(file: str, function: str) -> bool:
    """Tell whether a function names one of the resolvers."""
    defined = [
        node
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    return any(mentions(node) for node in defined)


def mentions(tree: ast.AST) -> bool:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool(names & RESOLVERS) or ("resolve" in names and "_paths" in names)


def test_every_option_that_names_storage_is_in_the_table() -> None:
    assert inspect.isfunction(_names.names_checked)  # signatures pass through it
    found = options()
    assert not found - set(RESOLVED), (
        "resolve these with `_driver/paths.py::resolve_path`, or say whose they are"
    )
    assert not set(RESOLVED) - found, "these options are gone"


def test_every_option_is_resolved_where_the_table_says() -> None:
    for option, place in RESOLVED.items():
        if place.startswith((OWN, SPARK)) or option not in options():
            continue
        file, _, function = place.partition("::")
        assert resolves(file, function), f"{option}: {place} calls none of {sorted(RESOLVERS)}"


def test_what_users_call_opens_no_path_that_was_not_resolved() -> None:
    for folder in FOLDERS_OF_USERS:
        for path in sorted((SOURCE / folder).glob("*.py")):
            file = path.relative_to(SOURCE).as_posix()
            tree = tree_of(file)
            opens = any(
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "storage"
                for node in ast.walk(tree)
            )
            if opens and file not in RECEIVES:
                assert mentions(tree), f"{file} opens storage and resolves no path; who does it for it?"
    for file in RECEIVES:
        assert (SOURCE / file).is_file(), file
