"""`emberflow show`: a stored model in words."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from emberflow.cli.exit_codes import exit_code_of

METADATA = "metadata/part-00000"


def show(
    model: Annotated[
        str, typer.Argument(help="A SavedModel, a .keras file, or a model that `emberflow train` saved.")
    ],
) -> None:
    """Show the inputs and outputs of a model, and what created it.

    For example:

      emberflow show /models/mnist

      emberflow show hdfs:///models/mnist.keras
    """
    raise typer.Exit(run_show(model))


def run_show(model: str) -> int:
    """Print a model in words; return the exit code."""

    def show(console: Console) -> None:
        from emberflow import storage
        from emberflow._driver.paths import resolve_path
        from emberflow._score.model_text import show_model

        path = resolve_path(None, model)
        file = storage.join(path, METADATA)
        lines = []
        if storage.exists(file):
            lines = stage_lines(model, json.loads(storage.read_bytes(file)))
        lines.append(show_model(storage.join(path, "saved_model") if lines else path))
        console.print("\n".join(lines), markup=False)

    return exit_code_of(show)


def last_epoch(history: dict[str, list[float]]) -> str:
    """Return the metrics of the last epoch as text.

    >>> last_epoch({"loss": [0.5, 0.25], "accuracy": [0.9, 0.95]})
    'loss 0.25  accuracy 0.95'
    """
    return "  ".join(f"{name} {values[-1]:.4g}" for name, values in history.items() if values)


def stage_lines(path: str, metadata: dict[str, Any]) -> list[str]:
    """Return lines about the columns and versions of a saved KerasModel."""
    params = metadata["defaultParamMap"] | metadata["paramMap"]
    versions = ", ".join(f"{name} {number}" for name, number in metadata.get("versions", {}).items())
    features = params.get("featuresCols") or [params.get("featuresCol")]
    labels = params.get("labelCols") or [params.get("labelCol")]
    added = [params.get(name) for name in ("rawPredictionCol", "probabilityCol", "predictionCol")]
    last = last_epoch(metadata.get("emberflow", {}).get("history", {}))
    return [
        f"{path}: {metadata['class']}, created by {versions}",
        f"  reads  columns {', '.join(features)} (trained for {', '.join(labels)})",
        f"  adds   columns {', '.join(name for name in added if name)}",
        *([f"  last   {last}"] if last else []),
    ]
