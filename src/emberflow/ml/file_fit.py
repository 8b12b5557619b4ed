"""`KerasEstimator.fitFiles` on the driver: a training on files that the nodes read themselves."""

from typing import TYPE_CHECKING, TypeAlias

from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow._feed.parquet import Parquet
    from emberflow.ml.estimator import KerasEstimator
    from emberflow.ml.model import KerasModel
    from emberflow.tfrecord.tfrecords import TFRecords

    Files: TypeAlias = Parquet | TFRecords


def fit_files(
    estimator: "KerasEstimator", source: "Files", validation: "Files | None", spark: "SparkSession | None"
) -> "KerasModel":
    """Train on files; see `KerasEstimator.fitFiles`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from emberflow._driver.cluster_facts import active_session
    from emberflow._driver.row_routing import with_resolved_path
    from emberflow.ml.training_description import columns_of, describe_training

    _check_split(estimator)
    session = spark or active_session()
    source = with_resolved_path(session, source)
    validation = validation and with_resolved_path(session, validation)
    # No rows: the checks of a DataFrame need its columns and their types only.
    schema = session.createDataFrame([], from_arrow_schema(source.schema))
    columns = columns_of(estimator, schema)
    training = describe_training(estimator, columns, has_validation=validation is not None)
    data = {"train": source} if validation is None else {"train": source, "validation": validation}
    return estimator._train(training, data, session)  # noqa: SLF001 - internal to Emberflow


def _check_split(estimator: "KerasEstimator") -> None:
    """Refuse Params that select rows to validate on: Spark does not see these rows."""
    share = estimator.getOrDefault("validationSplit")
    if share or estimator.isDefined("validationIndicatorCol"):
        given = f"validationSplit={share}" if share else "validationIndicatorCol"
        raise ConfigError(
            f"Files that nodes read are not split. Received: {given}.",
            fix="Pass the rows to validate on as files of their own: fitFiles(source, validation=...).",
        )
