"""SavedModelTransformer: a SavedModel that scores DataFrames as a Spark ML stage."""
# ruff: noqa: ARG002 - the constructor's arguments are in `_input_kwargs`, which tells those that were passed

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.ml import Model

from emberflow import storage
from emberflow._driver.paths import resolve_path
from emberflow._names import check_arguments, names_checked
from emberflow._score.model_source import fingerprint, is_keras_file, model_not_found
from emberflow._score.model_versions import is_model, model_at
from emberflow.config import check_path
from emberflow.errors import ConfigError, ModelError, StorageError
from emberflow.ml.params import arguments_kept, declare, defaults_of, with_accessors
from emberflow.ml.saved_stage import SavedStage
from emberflow.ml.saving import SAVED_MODEL, StageWriter, read_metadata, with_params
from emberflow.ml.scoring_params import ScoringParams, predict_options
from emberflow.predict import Errors, predict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from emberflow.ml.function_training import Exported
    from emberflow.result import Result


class TransformerWriter(StageWriter):
    """Saves a SavedModelTransformer with a copy of its model."""

    def _fill(self, folder: Path) -> dict[str, Any]:
        transformer: SavedModelTransformer = self._instance
        path = model_at(resolve_path(None, transformer.getOrDefault("path")))
        if not is_model(path):
            raise model_not_found(path)
        check_unchanged(transformer._exported, path)  # noqa: SLF001 - a class of ours
        storage.get_folder(path, folder / SAVED_MODEL)
        return {}


def to_model_path(value: Any) -> str:
    """Accept the path of a SavedModel."""
    path = str(value) if isinstance(value, Path) else value
    check_path("path", path)
    if is_keras_file(path):
        raise ConfigError(
            f"`path` must be the folder of a SavedModel. Received: path={path!r}, a Keras file.",
            fix=f'Export the model, model.export("folder"), or score with ef.predict(df, "{path}").',
        )
    return str(path)


def check_unchanged(exported: "Exported | None", path: str) -> None:
    """Refuse another model than the one that a stage was fitted with: a later fit has replaced it."""
    if exported is None or exported.path != path:
        return
    try:
        is_same = not storage.exists(path) or fingerprint(path) == exported.fingerprint
    except (StorageError, ImportError):
        return  # executors may see what this process cannot
    if not is_same:
        raise ModelError(
            f"The model must be the one that this stage was fitted with. Received: {path}, which was replaced since.",
            fix="Let your function export each model to a path of its own: ctx.export(model, "
            f'f"hdfs:///models/{{uuid.uuid4()}}"). To score with the new model: ef.SavedModelTransformer("{path}").',
        )


@with_accessors
class SavedModelTransformer(Model, ScoringParams, SavedStage):
    """Score DataFrames with a SavedModel: their columns, and the model's outputs as new columns.

    It is `ef.predict` as a stage of a Pipeline. `FunctionEstimator.fit` returns one too. Each Param can be passed by
    name, set by ``setX`` and read by ``getX``; one that is None is not set. A saved transformer has a copy of its
    model.

    Args:
        path: The SavedModel, or a folder of numbered versions of it (``models/12``), of which the newest is used:
            local, hdfs://, s3://, ...
        inputs: The column for each input of the signature, ``{"image": "pixels"}``, or the column for its only
            input. A list of columns is concatenated. If not set, columns are found by the inputs' names.
        outputs: The column for each output, ``{"output_0": "scores"}``, with a type ``{"output_0": ("scores",
            "array<double>")}``, or the column for its only output. If not set, "prediction", or the outputs' own
            names if there are several.
        signature: The SavedModel's signature.
        tags: The SavedModel's tags.
        keepCols: Columns of the DataFrame to keep; all if not set, none for an empty list.
        errors: Rows with nulls or the wrong shape: "raise" fails the job, "null" returns null outputs, "keep" also
            adds a column with the reason.
        errorCol: The name of that column.
        shapes: The shape of one row, by column, where the model does not fix it.
        dtypes: The dtype of the numbers in binary columns, by column, if not the input's own.
        padTo: The length to which shorter arrays are padded, by column.
        padValue: What is added to them, by column; 0 or an empty string if not set.
        batchSize: Rows in one call of the model; if not set, as many as fill some megabytes.
        gpusPerTask: GPUs of each task, its own, assigned by Spark's scheduler.

    Attributes:
        result: What `ef.run` returned, if `FunctionEstimator.fit` made this transformer; else None.

    Example:
        >>> scorer = SavedModelTransformer("hdfs:///models/mnist/1", inputs="pixels", outputs="scores")
        >>> scorer.transform(df)  # doctest: +SKIP
    """

    _writer = TransformerWriter
    _input_kwargs: dict[str, Any]
    path = declare("path", "the folder of the SavedModel, or of its numbered versions", to_model_path)

    @names_checked
    @arguments_kept
    def __init__(
        self,
        path: str | Path,
        *,
        inputs: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
        outputs: Any = None,
        signature: str = "serving_default",
        tags: Sequence[str] = ("serve",),
        keepCols: Sequence[str] | None = None,
        errors: Errors = "raise",
        errorCol: str = "error",
        shapes: Mapping[str, Sequence[int | None]] | None = None,
        dtypes: Mapping[str, str] | None = None,
        padTo: Mapping[str, int] | None = None,
        padValue: Mapping[str, Any] | None = None,
        batchSize: int | None = None,
        gpusPerTask: int = 0,
    ) -> None:
        super().__init__()
        self.result: Result | None = None
        self._exported: Exported | None = None
        self._setDefault(**defaults_of(SavedModelTransformer))
        self._set_passed(self._input_kwargs | {"path": path})

    def setParams(self, **params: Any) -> "SavedModelTransformer":
        """Set arguments of the constructor; those that are not passed stay as they are."""
        check_arguments(
            "SavedModelTransformer.setParams()",
            params,
            [*inspect.signature(SavedModelTransformer).parameters],
        )
        return self._set_passed(params)

    @classmethod
    def load(cls, path: str) -> "SavedModelTransformer":
        """Load a saved transformer, which uses the model in its own folder."""
        path = resolve_path(None, path)
        metadata = read_metadata(cls, path)
        model = storage.join(path, SAVED_MODEL)
        return with_params(cls(model), metadata).setParams(path=model)

    def _transform(self, dataset: "DataFrame") -> "DataFrame":
        path = resolve_path(dataset.sparkSession, self.getOrDefault("path"))
        check_unchanged(self._exported, path)
        return predict(dataset, path, **predict_options(self))
