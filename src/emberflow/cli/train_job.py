"""What `emberflow train` does: import the program, train, save the model."""

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from emberflow.cli.exit_codes import exit_code_of
from emberflow.cli.show import last_epoch
from emberflow.cli.spark_files import parse_pairs, read_rows, session
from emberflow.errors import ConfigError

BUILD = "build_model"


def load_builder(path: Path) -> Callable[[], Any]:
    """Return `build_model` of a Python file."""
    if not path.is_file():
        raise ConfigError(
            f"The program must be a Python file. Received: {path}.",
            fix="Pass the path of a file that exists.",
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(
            f"The program must be a Python file. Received: {path}.", fix="Pass a file that ends in .py."
        )
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
    """Parse Params: numbers, true, false and lists are JSON, everything else is text.

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
    columns: str | None,
    master: str | None,
    params: dict[str, Any],
    more: Sequence[str],
) -> int:
    """Train and save; return the exit code."""

    def train(console: Console) -> None:
        from emberflow.ml import KerasEstimator
        from emberflow.ml.params import check_params

        given = params | parse_params(more)
        check_params(KerasEstimator(), given)
        estimator = KerasEstimator(model=load_builder(program), **given)
        with session(master, f"emberflow train {program.name}") as spark:
            model = estimator.fit(read_rows(spark, rows, source_format, options, columns))
            model.write().overwrite().save(output)
        console.print(
            f"{last_epoch(model.history)}\nThe model is in {output}. "
            f"Score rows with it: emberflow predict ROWS {output} OUT"
        )

    return exit_code_of(train)
