"""What `emberflow train` does: import the program, train, save the model."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from emberflow.cli.exit_codes import exit_code_of
from emberflow.cli.file_rows import FILES, READ, SPARK, check_input_mode, source_of
from emberflow.cli.program import ProgramModel, load_builder
from emberflow.cli.show import last_epoch
from emberflow.cli.spark_files import parse_pairs, read_rows, session
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow.cli.file_rows import Files
    from emberflow.ml import KerasEstimator, KerasModel


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


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """The rows to train on, how they are read, and the files of the evaluator."""

    path: str
    source_format: str | None = None
    options: Sequence[str] = ()
    columns: str | None = None
    input_mode: str = SPARK
    evaluation: str | None = None

    def check(self) -> None:
        """Refuse options that contradict each other, before Spark starts."""
        check_input_mode(self.input_mode)
        if self.input_mode == FILES and (self.columns or self.options):
            raise ConfigError(
                "Nodes that read files take the columns of the files. "
                f"Received: --columns {self.columns!r}, --option {list(self.options)}.",
                fix="Leave them out, or pass --input-mode spark.",
            )

    def evaluated_files(self, names: Sequence[str]) -> "Files | None":
        """Return the evaluator's files, whose format is that of the rows unless their ending says another."""
        if self.evaluation is None:
            return None
        known = self.source_format if self.source_format in READ else None
        return source_of(self.evaluation, known, names)

    def fit(self, estimator: "KerasEstimator", spark: "SparkSession", names: Sequence[str]) -> "KerasModel":
        """Train on the rows: those that Spark reads, or files that the nodes read."""
        if self.input_mode == FILES:
            return estimator.fitFiles(source_of(self.path, self.source_format, names), spark=spark)
        return estimator.fit(read_rows(spark, self.path, self.source_format, self.options, self.columns))


def run_train(
    *,
    program: Path,
    rows: TrainingRows,
    output: str,
    continues: bool,
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
        rows.check()
        builder = load_builder(program)
        estimator = KerasEstimator(model=builder, **given)
        names = [*estimator.feature_columns(), *estimator.label_columns()]
        with session(master, f"emberflow train {program.name}") as spark:
            if continues:
                check_checkpoint(spark, given["checkpointDir"])
            estimator.setEvaluation(rows.evaluated_files(names))
            model = rows.fit(estimator, spark, names)
            if isinstance(builder, ProgramModel) and not model.trained.saved_model:
                builder.load()  # its classes: this process must load the model to export it
            model.write().overwrite().save(output)
        console.print(
            f"{last_epoch(model.history)}{_last_evaluation(model)}\nThe model is in {output}. "
            f"Score rows with it: emberflow predict ROWS {output} OUT"
        )

    return exit_code_of(train)


def check_checkpoint(spark: "SparkSession", folder: str | None) -> None:
    """Refuse to continue where there is no checkpoint."""
    from emberflow._driver.paths import resolve_path
    from emberflow._node.checkpoints import attempts_in, steps_of

    attempts = attempts_in(resolve_path(spark, folder)) if folder else []
    if not any(steps_of(attempt) for _, attempt in attempts):
        raise ConfigError(
            f"There must be a checkpoint to continue from. Received: checkpoint-dir={folder!r}, without one.",
            fix="Name the --checkpoint-dir of the training before, or leave --continue out.",
        )


def _last_evaluation(model: "KerasModel") -> str:
    """Return what the evaluator reported last, if there was one."""
    from emberflow.ml.evaluation import PREFIX

    metrics = model.result.metrics if model.result else ()
    found = [each for each in metrics if any(name.startswith(PREFIX) for name in each.values)]
    if not found:
        return ""
    values = "  ".join(f"{name.removeprefix(PREFIX)} {value:.4g}" for name, value in found[-1].values.items())
    return f"\nThe evaluator's last: {values} (step {found[-1].step})"
