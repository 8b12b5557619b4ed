"""KerasModel: scoring, history, and the Keras model itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.ml import Model
from pyspark.ml.param import TypeConverters

from emberflow._score.model_versions import KEEP_VERSIONS, KerasVersions
from emberflow.errors import ConfigError
from emberflow.ml.exported_model import write_exported
from emberflow.ml.keras_saving import ModelWriter, load_model
from emberflow.ml.model_columns import tensors_of
from emberflow.ml.model_outputs import ModelOutput
from emberflow.ml.params import ColumnParams, declare, with_accessors
from emberflow.ml.saved_stage import SavedStage
from emberflow.ml.training import Trained, model_of
from emberflow.predict import predict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from emberflow.result import Result

RAW = "__ef_raw"


@with_accessors
class KerasModel(Model, ColumnParams, SavedStage):
    """A trained Keras model that scores DataFrames.

    ``transform`` keeps the DataFrame's columns and adds `predictionCol`, a double (the class index for cross-entropy
    losses, otherwise the value; an array where an output has several), `rawPredictionCol`, the model's output, and
    `probabilityCol` where the output is a probability. ``KerasEstimator.fit`` and ``KerasModel.load`` create it.

    Attributes:
        trained: The model's file, its history and the meaning of its outputs.
        result: What `ef.run` returned; None for a model that was loaded.
        versions: The folder of versions that it was loaded from, else empty; streams are scored with the newest one.
    """

    _writer = ModelWriter
    gpusPerTask = declare("gpusPerTask", "GPUs of each task that scores, its own", TypeConverters.toInt)

    def __init__(self, *, trained: Trained, result: "Result | None" = None, versions: str = "") -> None:
        super().__init__()
        self._setDefault(gpusPerTask=0)
        self.trained = trained
        self.result = result
        self.versions = versions
        self._loaded: Any = None

    @property
    def history(self) -> dict[str, list[float]]:
        """Loss and metrics, and those of the validation rows, one value per epoch."""
        return self.trained.history

    def keras(self) -> Any:
        """Return the Keras model, on the driver; it is loaded on the first call."""
        # Not a cached_property: Spark's Params read every attribute, which would load TensorFlow after each fit.
        if self._loaded is None:
            self._loaded = model_of(self.trained.keras_file)
        return self._loaded

    def _export(self, folder: Path) -> None:
        """Write the SavedModel into a local folder: what the chief exported, else exported here."""
        if self.trained.saved_model:
            write_exported(self.trained.saved_model, folder)
        else:
            self.keras().export(str(folder), verbose=False)

    @property
    def summary(self) -> str:
        """The layers and sizes of the model, as Keras prints them."""
        lines: list[str] = []
        self.keras().summary(print_fn=lambda line, **_: lines.append(str(line)))
        return "\n".join(lines)

    def _repr_html_(self) -> str | None:
        """Show its training in notebooks; a model that was loaded is shown as text."""
        return self.result._repr_html_() if self.result is not None else None

    def plot(self, path: str) -> str:
        """Draw the learning curves into an image file and return its path."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ConfigError(
                "`plot` needs matplotlib. Received: an environment without it.",
                fix="pip install 'emberflow[plot]'",
            ) from error
        names = [name for name in self.history if not name.startswith("val_")]
        figure = Figure(figsize=(5.0 * len(names), 3.6), layout="constrained")
        for place, name in enumerate(names, start=1):
            axes = figure.add_subplot(1, len(names), place)
            for label, key in (("training", name), ("validation", f"val_{name}")):
                if key in self.history:
                    values = self.history[key]
                    axes.plot(range(1, len(values) + 1), values, marker="o", markersize=3, label=label)
            axes.set(title=name.replace("_", " "), xlabel="epoch")
            axes.grid(alpha=0.25)
            axes.legend(frameon=False)
        figure.savefig(path, dpi=120)
        return str(Path(path))

    @classmethod
    def load(cls, path: str) -> "KerasModel":
        """Load a saved model; of a folder of published versions the newest one.

        The latter scores a streaming DataFrame with the newest version at each time, without a restart.
        """
        return load_model(cls, path)

    def publish(self, publishTo: str, *, keepVersions: int = KEEP_VERSIONS) -> int:
        """Publish this model as the next numbered version of a folder, atomically; return its number.

        ``publishTo/12`` is a SavedModel for TensorFlow Serving, `ef.predict` and `KerasModel.load`.

        Args:
            publishTo: The folder of versions, local or any URL that fsspec knows.
            keepVersions: How many versions stay, this one included; older ones are removed.
        """
        from emberflow.ml.publishing import publish_next

        return publish_next(self, publishTo, keepVersions)

    def _transform(self, dataset: "DataFrame") -> "DataFrame":
        features = self.feature_columns()
        names = [tensor.name for tensor in tensors_of(self.keras())[0]]
        inputs: Any = features[0]
        if len(features) > 1:
            inputs = {names[0]: features} if len(names) == 1 else _paired(names, features)
        model_outputs = self.trained.outputs
        raw = {each.output: f"{RAW}_{number}" for number, each in enumerate(model_outputs)}
        outputs: Any = raw if len(raw) > 1 else next(iter(raw.values()))
        kinds = dict(dataset.dtypes)
        follows = dataset.isStreaming and self.versions
        scored = predict(
            dataset,
            KerasVersions(path=self.versions, model=self.keras()) if follows else self.keras(),
            inputs=inputs,
            outputs=outputs,
            batch_size=self.getOrDefault("batchSize") if self.isSet("batchSize") else None,
            gpus=self.getOrDefault("gpusPerTask"),
            dtypes={name: "uint8" for name in features if kinds.get(name) == "binary"},  # as in training
            pad_to=self.trained.pad_to,
            pad_value={}
            if self.trained.pad_value is None
            else dict.fromkeys(self.trained.pad_to, self.trained.pad_value),
        )
        for each in model_outputs:
            scored = self._add_columns(scored, each, raw[each.output], is_only=len(raw) == 1)
        return scored.drop(*raw.values())

    def _add_columns(
        self, scored: "DataFrame", output: ModelOutput, raw: str, *, is_only: bool
    ) -> "DataFrame":
        """Add the columns of one output; with several outputs, its name is appended to the columns' names."""
        from pyspark.sql import functions as F

        def named(column: str) -> str:
            return column if is_only else f"{column}_{output.output}"

        kind = dict(scored.dtypes)[raw]
        values = F.col(raw) if kind.startswith("array") else F.array(F.col(raw))
        raw_column, probability = self.getOrDefault("rawPredictionCol"), self.getOrDefault("probabilityCol")
        prediction = self.getOrDefault("predictionCol")
        if kind.startswith("array<array"):
            return scored.withColumn(named(raw_column), F.col(raw)) if raw_column else scored
        if raw_column:
            scored = scored.withColumn(named(raw_column), _vector(output.scores(values)))
        if probability and output.is_probability:
            scored = scored.withColumn(named(probability), _vector(output.scores(values)))
        if prediction:
            scored = scored.withColumn(named(prediction), output.prediction(values))
        return scored


def _vector(scores: Any) -> Any:
    """Return an array column as Spark's vector, which its evaluators require."""
    from pyspark.ml.functions import array_to_vector

    return array_to_vector(scores.cast("array<double>"))


def _paired(names: list[str], columns: list[str]) -> dict[str, str]:
    if set(names) == set(columns):
        return {name: name for name in names}
    return dict(zip(names, columns, strict=True))
