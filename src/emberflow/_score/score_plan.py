"""Everything that a call of `ef.predict` decides on the driver, before any task runs."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from emberflow._driver.cluster_facts import ClusterFacts, read_facts
from emberflow._driver.profiles import check_gpus, profile_of
from emberflow._driver.row_routing import quoted
from emberflow._driver.spark_versions import FRAME_PROFILES, check_offers, offers
from emberflow._plan.stages import Stage
from emberflow._score.input_matching import Inputs
from emberflow._score.input_plan import InputOptions, InputPlan, plan_inputs
from emberflow._score.model_facts import ModelFacts
from emberflow._score.model_source import ModelSource
from emberflow._score.result_columns import output_columns, readable_schema, used_columns
from emberflow._score.scoring import ScoreSpec
from emberflow.config import RunConfig, check_count
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ERRORS = ("raise", "null", "keep")


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """What the user asked for, apart from the model; see `ef.predict`."""

    inputs: Inputs
    outputs: Any
    batch_size: int | None
    keep: Sequence[str] | None
    errors: str
    error_column: str
    gpus: int
    shapes: Mapping[str, Sequence[int | None]]
    dtypes: Mapping[str, Any]
    pad_to: Mapping[str, int] = field(default_factory=dict)
    pad_value: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        check_count("gpus", self.gpus, least=0)
        if self.errors not in ERRORS:
            raise ConfigError(
                f'`errors` must be "raise", "null" or "keep". Received: errors={self.errors!r}.',
                fix='Pass errors="keep" to get a column with the reasons.',
            )


@dataclass(frozen=True, kw_only=True)
class ScorePlan:
    """The planned job: the columns to send and their names, the task's spec, the schema, the tasks' resources."""

    columns: Mapping[str, str]
    spec: ScoreSpec
    schema: "StructType"
    profile: Any


def check_frame(df: Any) -> None:
    """Reject what is no DataFrame, and a DataFrame with ambiguous column names."""
    if not hasattr(df, "mapInArrow"):
        raise ConfigError(
            f"The first argument must be a Spark DataFrame. Received: {type(df).__name__}.",
            fix="Pass spark.createDataFrame(...).",
        )
    lower = [name.lower() for name in df.columns]
    doubled = sorted({name for name in df.columns if lower.count(name.lower()) > 1})
    if doubled:
        raise ConfigError(
            f"Columns must have different names. Received: {', '.join(doubled)} more than once.",
            fix="Rename or drop one of them.",
        )


def plan_scoring(df: "DataFrame", source: ModelSource, facts: ModelFacts, request: ScoreRequest) -> ScorePlan:
    """Check the request against the DataFrame and the model, and plan the job."""
    from pyspark.sql.types import StructType

    cluster = read_facts(df.sparkSession)
    kept = _kept(df, request.keep)
    input_options = InputOptions(
        shapes=request.shapes, dtypes=request.dtypes, pad_to=request.pad_to, pad_value=request.pad_value
    )
    inputs = plan_inputs(readable_schema(df.schema, kept), facts, request.inputs, input_options)
    error_column = request.error_column if request.errors == "keep" else ""
    outputs, fields = output_columns(facts, request.outputs, kept, error_column)
    rows = next((tensor.rows for tensor in facts.inputs if tensor.rows is not None), None)
    names = tuple(tensor.name for tensor in facts.outputs) or tuple(plan.name for plan in outputs)
    # Spark's mapInArrow fails on names with dots and backticks: columns are sent under numbered names.
    short = {name: f"c{at}" for at, name in enumerate(used_columns(df.columns, kept, inputs))}
    spec = ScoreSpec(
        source=dataclasses.replace(source, outputs=names),
        tensors=facts.inputs,
        inputs=tuple(_renamed(plan, short) for plan in inputs),
        outputs=outputs,
        keep={name: short[name] for name in kept},
        batch_size=rows or request.batch_size,
        errors=request.errors,
        error_column=request.error_column,
        rows=rows,
        gpus=request.gpus,
        gpu_resource=cluster.gpu_resource,
        storage=cluster.storage,
    )
    return ScorePlan(
        columns={quoted(name): alias for name, alias in short.items()},
        spec=spec,
        schema=StructType([*(df.schema[name] for name in kept), *fields]),
        profile=_profile(df.sparkSession, cluster, request.gpus),
    )


def _kept(df: "DataFrame", keep: Sequence[str] | None) -> list[str]:
    if keep is None:
        return list(df.columns)
    names = [keep] if isinstance(keep, str) else list(keep)
    unknown = [name for name in names if name not in df.columns]
    if unknown or len(set(names)) < len(names):
        raise ConfigError(
            "`keep` must name columns of the DataFrame, each once. Received: "
            f"{', '.join(unknown or names)}; there are: {', '.join(df.columns)}.",
            fix="Correct the names, or leave keep= out to keep all.",
        )
    return names


def _renamed(plan: InputPlan, short: Mapping[str, str]) -> InputPlan:
    """Return the plan with its columns where they are in the task's batches."""
    columns = []
    for column in plan.columns:
        first, *rest = column.leaf.path
        leaf = dataclasses.replace(column.leaf, path=(short[first], *rest))
        columns.append(dataclasses.replace(column, leaf=leaf))
    return dataclasses.replace(plan, columns=tuple(columns))


def _profile(spark: "SparkSession", facts: ClusterFacts, gpus: int) -> Any:
    check_gpus(RunConfig(workers=1, gpus=gpus), facts)
    if not offers(spark, FRAME_PROFILES) and gpus in (0, facts.gpus_per_task):
        return None  # tasks hold what the session gives each
    profile = profile_of(Stage(first_rank=0, ranks=1, gpus=gpus), facts)
    if profile is not None:
        setting = f"spark.task.resource.{facts.gpu_resource}.amount"
        check_offers(spark, FRAME_PROFILES, fix=f"Start the session with {setting}={gpus}, or pass gpus=0.")
    return profile
