"""`emberflow train`, `emberflow predict` and `emberflow show`: what they do, apart from their options."""

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from emberflow.cli.outcome import guarded
from emberflow.cli.rows import format_of, parse_pairs, read_rows, session, write_rows
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUILD = "build_model"
METADATA = "metadata/part-00000"


def load_builder(path: Path) -> Callable[[], Any]:
    """Return `build_model` of a Python file."""
    if not path.is_file():
        raise ConfigError(f"The program must be a Python file. Received: {path}.", fix="Pass its path.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be imported as Python.", fix="Pass a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, BUILD, None)):
        found = sorted(name for name in dir(module) if not name.startswith("_"))[:20]
        raise ConfigError(
            f"{path} must define a function `{BUILD}`. Received: {found}.",
            fix=f"Write `def {BUILD}(): ...` that returns a compiled Keras model.",
        )
    return getattr(module, BUILD)  # type: ignore[no-any-return]


def parse_params(params: Sequence[str]) -> dict[str, Any]:
    """Take Params apart: numbers, true, false and lists are read as JSON, all else is text.

    >>> parse_params(["gpusPerWorker=1", "optimizer=adam", "shuffle=false"])
    {'gpusPerWorker': 1, 'optimizer': 'adam', 'shuffle': False}
    """

    def value_of(text: str) -> Any:
        with suppress(json.JSONDecodeError):
            return json.loads(text)
        return text

    return {name: value_of(text) for name, text in parse_pairs(params).items()}


def run_train(
    *,
    program: Path,
    rows: str,
    output: str,
    source_format: str | None,
    options: Sequence[str],
    master: str | None,
    params: dict[str, Any],
    more: Sequence[str],
) -> int:
    """Train and save; return the exit code."""

    def train(console: Console) -> None:
        from emberflow.ml import KerasEstimator

        given = params | parse_params(more)
        unknown = sorted(name for name in given if not KerasEstimator().hasParam(name))
        if unknown:
            raise ConfigError(
                f"KerasEstimator has no Param of this name. Received: {', '.join(unknown)}.",
                fix="See KerasEstimator().explainParams().",
            )
        estimator = KerasEstimator(model=load_builder(program), **given)
        with session(master, f"emberflow train {program.name}") as spark:
            model = estimator.fit(read_rows(spark, rows, source_format, options))
            model.write().overwrite().save(output)
        console.print(
            f"{last_of(model.history)}\nThe model is in {output}. Score with it: emberflow predict ROWS {output} OUT"
        )

    return guarded(train)


def run_predict(
    *,
    rows: str,
    model: str,
    output: str,
    source_format: str | None,
    options: Sequence[str],
    output_format: str | None,
    master: str | None,
    scoring: dict[str, Any],
) -> int:
    """Score and write; return the exit code."""

    def score(console: Console) -> None:
        chosen = output_format or format_of(output)
        with session(master, "emberflow predict") as spark:
            frame = read_rows(spark, rows, source_format, options)
            write_rows(scored_by(model, frame, scoring), output, chosen)
        console.print(f"The scored rows are in {output}.")

    return guarded(score)


def scored_by(model: str, frame: "DataFrame", scoring: dict[str, Any]) -> "DataFrame":
    """Return the rows with what a saved KerasModel says about them, or any other model."""
    from emberflow import storage

    if not storage.exists(storage.join(storage.folder_root(model), METADATA)):
        from emberflow.predict import predict

        return predict(frame, model, **scoring)
    from emberflow.ml import KerasModel

    known = ("batch_size",)
    unused = sorted(name for name in scoring if name not in known)
    if unused:
        raise ConfigError(
            f"{model} was written by `emberflow train` and knows its columns. Received: {', '.join(unused)}.",
            fix=f"Leave them out, or score {storage.join(model, 'saved_model')}.",
        )
    saved = KerasModel.load(model)
    if "batch_size" in scoring:
        saved._set(batchSize=scoring["batch_size"])  # noqa: SLF001 - Spark ML's own setter
    return saved.transform(frame)


def columns_asked(given: Sequence[str]) -> Any:
    """Return columns as `ef.predict` takes them: one, several, or by the names of inputs or outputs.

    >>> columns_asked(["pixels"]), columns_asked(["a", "b"]), columns_asked(["image=pixels"])
    ('pixels', ['a', 'b'], {'image': 'pixels'})
    """
    if any("=" in each for each in given):
        return parse_pairs(given)
    return given[0] if len(given) == 1 else list(given)


def run_show(model: str) -> int:
    """Print a model in words; return the exit code."""

    def show(console: Console) -> None:
        from emberflow import storage
        from emberflow._score.model_text import show_model

        root = storage.folder_root(model)
        file = storage.join(root, METADATA)
        lines = []
        if storage.exists(file):
            lines = stage_lines(model, json.loads(storage.read_bytes(file)))
            root = storage.join(root, "saved_model")
        lines.append(show_model(root if lines else model))
        console.print("\n".join(lines), markup=False)

    return guarded(show)


def last_of(history: dict[str, list[float]]) -> str:
    """Say what the last epoch brought.

    >>> last_of({"loss": [0.5, 0.25], "accuracy": [0.9, 0.95]})
    'loss 0.25  accuracy 0.95'
    """
    return "  ".join(f"{name} {values[-1]:.4g}" for name, values in history.items() if values)


def stage_lines(path: str, metadata: dict[str, Any]) -> list[str]:
    """Say the columns and versions of a saved KerasModel."""
    params = metadata["defaultParamMap"] | metadata["paramMap"]
    versions = ", ".join(f"{name} {number}" for name, number in metadata.get("versions", {}).items())
    features = params.get("featuresCols") or [params.get("featuresCol")]
    labels = params.get("labelCols") or [params.get("labelCol")]
    added = [params.get(name) for name in ("rawPredictionCol", "probabilityCol", "predictionCol")]
    last = last_of(metadata.get("emberflow", {}).get("history", {}))
    return [
        f"{path}: {metadata['class']}, written by {versions}",
        f"  reads  columns {', '.join(features)} (trained for {', '.join(labels)})",
        f"  adds   columns {', '.join(name for name in added if name)}",
        *([f"  last   {last}"] if last else []),
    ]
