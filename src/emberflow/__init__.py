"""TensorFlow and Keras on Apache Spark.

The names here are all that a user types. Importing this package imports neither TensorFlow nor Spark.
"""

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
)
from emberflow.result import Metric, Report, Result
from emberflow.run import run

__all__ = [
    "ClusterError",
    "ConfigError",
    "DataError",
    "EmberflowError",
    "EncryptionError",
    "Metric",
    "ModelError",
    "NodeError",
    "NodeFailedError",
    "NodeLostError",
    "PeerError",
    "Report",
    "Result",
    "RunCancelledError",
    "ShippingError",
    "StartTimeoutError",
    "StorageError",
    "run",
]
__version__ = "0.1.0.dev0"
