"""TensorFlow and Keras on Apache Spark.

The names here are all that a user types. Importing this package imports neither TensorFlow nor Spark.
"""

import importlib as _importlib
import typing as _typing

from emberflow.cluster import cluster
from emberflow.errors import (
    ClusterError,
    ConfigError,
    DataError,
    EmberflowError,
    EncryptionError,
    ModelError,
    NodeError,
    NodeFailedError,
    NodeLostError,
    PeerError,
    RunCancelledError,
    ShippingError,
    StartTimeoutError,
    StorageError,
    StreamError,
    SupersededError,
    UnknownNameError,
)
from emberflow.live_cluster import Cluster
from emberflow.plan import Plan, plan
from emberflow.predict import predict
from emberflow.result import Metric, Report, Result
from emberflow.run import run
from emberflow.run_parallel import run_parallel

if _typing.TYPE_CHECKING:
    from emberflow import deploy, tfrecord
    from emberflow._feed.parquet import Parquet
    from emberflow.local.cluster import local_cluster
    from emberflow.ml import FunctionEstimator, KerasEstimator, KerasModel, SavedModelTransformer
    from emberflow.strategies.parameter_server.embedding import ShardedEmbedding
    from emberflow.tfrecord.tfrecords import TFRecords

# Imported when they are first used: what they need takes longer to import than all the rest.
_LATER = {
    "FunctionEstimator": "emberflow.ml",
    "KerasEstimator": "emberflow.ml",
    "KerasModel": "emberflow.ml",
    "Parquet": "emberflow._feed.parquet",
    "SavedModelTransformer": "emberflow.ml",
    "ShardedEmbedding": "emberflow.strategies.parameter_server.embedding",
    "TFRecords": "emberflow.tfrecord.tfrecords",
    "local_cluster": "emberflow.local.cluster",
}

__all__ = [
    "Cluster",
    "ClusterError",
    "ConfigError",
    "DataError",
    "EmberflowError",
    "EncryptionError",
    "FunctionEstimator",
    "KerasEstimator",
    "KerasModel",
    "Metric",
    "ModelError",
    "NodeError",
    "NodeFailedError",
    "NodeLostError",
    "Parquet",
    "PeerError",
    "Plan",
    "Report",
    "Result",
    "RunCancelledError",
    "SavedModelTransformer",
    "ShardedEmbedding",
    "ShippingError",
    "StartTimeoutError",
    "StorageError",
    "StreamError",
    "SupersededError",
    "TFRecords",
    "UnknownNameError",
    "cluster",
    "deploy",
    "local_cluster",
    "plan",
    "predict",
    "run",
    "run_parallel",
    "tfrecord",
]
__version__ = "0.1.0.dev0"


def __getattr__(name: str) -> _typing.Any:
    if name in ("deploy", "tfrecord"):
        return _importlib.import_module(f"emberflow.{name}")
    if name in _LATER:
        return getattr(_importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'emberflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
