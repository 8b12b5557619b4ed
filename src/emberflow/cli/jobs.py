"""`emberflow train` and `emberflow predict`: what the commands do, apart from their options."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from emberflow.errors import ConfigError, EmberflowError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUILD = "build_model"
WRONG_INPUT = 2
FAILED = 1


@contextmanager
def session(master: str | None, app_name: str) -> "Iterator[SparkSession]":
    """Give a session: the one of spark-submit or of the environment, or one on `master`; stop only our own."""
    from pyspark.sql import SparkSession

    from emberflow._java import find_java_home

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # this process is the command's own
    builder = SparkSession.builder.appName(app_name)
    if (master or "").startswith("sc://"):
        builder = builder.remote(str(master))
    else:
        os.environ.setdefault("JAVA_HOME", str(find_java_home()))
        builder = builder.master(master) if master else builder
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def read_rows(
    spark: "SparkSession", path: str, source_format: str | None, options: Sequence[str]
) -> "DataFrame":
    """Read the input in any format Spark knows, or TFRecord; the format is told by the name if not given."""
    chosen = source_format or format_of(path)
    if chosen == "tfrecord":
        from emberflow import tfrecord

        tfrecord.register(spark)
    defaults = {"header": "true", "inferSchema": "true"} if chosen == "csv" else {}
    return spark.read.format(chosen).options(**(defaults | parse_options(options))).load(path)


def format_of(path: str) -> str:
    """Tell the format from a path's ending.

    >>> format_of("/data/rows.csv"), format_of("hdfs:///rows.parquet")
    ('csv', 'parquet')
    """
    known = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".orc": "orc"}
    known |= {".tfrecord": "tfrecord", ".tfrecords": "tfrecord"}
    for ending, name in known.items():
        if path.rstrip("/").endswith(ending):
            return name
    raise ConfigError(
        f"The format must be told by the path's ending or by --format. Received: {path!r}.",
        fix="Pass --format parquet, or csv, json, orc, tfrecord.",
    )


def parse_options(options: Sequence[str]) -> dict[str, str]:
    """Take ``name=value`` apart.

    >>> parse_options(["header=true"])
    {'header': 'true'}
    """
    pairs = [option.partition("=") for option in options]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise ConfigError(
            f"Options must have the form name=value. Received: {wrong}.", fix="Pass --option header=true."
        )
    return {name: value for name, _, value in pairs}


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
        raise ConfigError(
            f"{path} must define a function `{BUILD}`. Received: {sorted(set(dir(module)))[:20]}.",
            fix=f"Write `def {BUILD}(): ...` that returns a compiled Keras model.",
        )
    return getattr(module, BUILD)  # type: ignore[no-any-return]


def run_train(
    *,
    program: Path,
    rows: str,
    output: str,
    source_format: str | None,
    options: Sequence[str],
    master: str | None,
    params: dict[str, Any],
) -> int:
    """Train and save; return the exit code."""

    def train(console: Console) -> None:
        from emberflow.ml import KerasEstimator

        build = load_builder(program)
        with session(master, f"emberflow train {program.name}") as spark:
            model = KerasEstimator(model=build, **params).fit(read_rows(spark, rows, source_format, options))
            model.write().overwrite().save(output)
        last = "  ".join(f"{name} {values[-1]:.4g}" for name, values in model.history.items() if values)
        console.print(f"{last}\nThe model is in {output}. Score with it: emberflow predict ROWS {output} OUT")

    return _guarded(train)


def run_predict(
    *,
    rows: str,
    model: str,
    output: str,
    source_format: str | None,
    options: Sequence[str],
    output_format: str | None,
    columns: Sequence[str],
    master: str | None,
) -> int:
    """Score and write; return the exit code."""

    def score(console: Console) -> None:
        from emberflow import storage
        from emberflow.ml import KerasModel
        from emberflow.predict import predict

        with session(master, "emberflow predict") as spark:
            frame = read_rows(spark, rows, source_format, options)
            if storage.exists(storage.join(model, "metadata")):
                scored = KerasModel.load(model).transform(frame)
            else:
                scored = predict(frame, model, inputs=list(columns) or None)
            chosen = output_format or format_of(output)
            ready = without_vectors(scored) if chosen in ("csv", "json") else scored
            ready.write.format(chosen).mode("overwrite").options(**_written(chosen)).save(output)
        console.print(f"The scored rows are in {output}.")

    return _guarded(score)


def run_show(model: str) -> int:
    """Print a model in words; return the exit code."""

    def show(console: Console) -> None:
        from emberflow import storage
        from emberflow._score.show import show_model

        keras_file = storage.join(model, "model.keras")
        path = keras_file if storage.exists(keras_file) else model
        console.print(show_model(path), markup=False)

    return _guarded(show)


def without_vectors(scored: "DataFrame") -> "DataFrame":
    """Return the rows with vectors and arrays as text, which csv and json can hold."""
    from pyspark.sql import functions as F

    def plain(name: str, kind: str) -> Any:
        column = F.col(f"`{name}`")
        if kind == "vector":
            from pyspark.ml.functions import vector_to_array

            return F.to_json(vector_to_array(column)).alias(name)
        return F.to_json(column).alias(name) if kind.startswith(("array", "struct", "map")) else column

    return scored.select(*[plain(name, kind) for name, kind in scored.dtypes])


def _written(chosen: str) -> dict[str, str]:
    return {"header": "true"} if chosen == "csv" else {}


def _guarded(action: Callable[[Console], None]) -> int:
    """Run it; say what went wrong in our own words: 2 for wrong input, 1 for everything else."""
    console = Console(highlight=False)
    try:
        action(console)
    except ConfigError as error:
        Console(stderr=True, highlight=False).print(str(error), markup=False)
        return WRONG_INPUT
    except EmberflowError as error:
        Console(stderr=True, highlight=False).print(str(error), markup=False)
        return FAILED
    return 0
