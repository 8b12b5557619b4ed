"""The estimator's Params that are options of `ef.run`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from pyspark.ml.param import Params, TypeConverters

from emberflow._choices import STRATEGIES, GpuSource, TransportChoice
from emberflow.config import (
    EXCHANGE_TIMEOUT,
    EXECUTOR_TIMEOUT,
    JOIN_TIMEOUT,
    START_TIMEOUT,
    check_count,
    check_page,
    check_path,
    check_resource,
    check_seconds,
    parse_port_range,
)
from emberflow.ml.params import declare, to_choice, to_count

if TYPE_CHECKING:
    from emberflow.live_cluster import Cluster

RUN_OPTIONS = {
    "numWorkers": "workers",
    "numPs": "ps",
    "gpusPerWorker": "gpus",
    "gpuSource": "gpu_source",
    "gpuResource": "gpu_resource",
    "transport": "transport",
    "strategy": "strategy",
    "tensorboardDir": "tensorboard",
    "tensorboardHost": "tensorboard_host",
    "checkpointDir": "checkpoint_dir",
    "maxRestarts": "max_restarts",
    "restartOnError": "restart_on_error",
    "spoolDir": "spool_dir",
    "spoolLimit": "spool_limit",
    "startTimeout": "start_timeout",
    "executorTimeout": "executor_timeout",
    "joinTimeout": "join_timeout",
    "exchangeTimeout": "exchange_timeout",
    "preload": "preload",
    "verbose": "verbose",
    "encrypt": "encrypt",
    "allowUnencrypted": "allow_unencrypted",
    "driverHost": "driver_host",
    "portRange": "port_range",
    "record": "record",
    "page": "page",
}


def run_options(stage: Params, cluster: "Cluster | None" = None) -> dict[str, Any]:
    """Return the options of `ef.run` that the stage sets, by their name there.

    Args:
        stage: The estimator.
        cluster: The idle cluster whose nodes train; all of them, unless the stage says how many.
    """
    options = {
        option: stage.getOrDefault(name) for name, option in RUN_OPTIONS.items() if stage.isDefined(name)
    }
    if not STRATEGIES[options["strategy"]].is_asynchronous:
        options["ps"] = 0  # numPs is that of the asynchronous strategies
    if cluster is not None and options["workers"] == "auto":
        options["workers"] = cluster.workers
    return options


def to_workers(value: Any) -> int | str:
    """Accept a whole number or "auto"."""
    check_count("numWorkers", value, auto="to take every slot Spark offers")
    return value  # type: ignore[no-any-return]


def to_seconds(name: str, usual: float) -> Callable[[Any], float]:
    """Return a converter that accepts a number of seconds above 0."""

    def convert(value: Any) -> float:
        seconds = TypeConverters.toFloat(value)
        check_seconds(name, seconds, usual)
        return seconds

    return convert


def to_text(name: str, check: Callable[[str, Any], object]) -> Callable[[Any], str]:
    """Return a converter that accepts the text which the check does not refuse."""

    def convert(value: Any) -> str:
        check(name, value)
        return str(value)

    return convert


def to_page(value: Any) -> bool | int:
    """Accept True, False or a port."""
    check_page("page", value)
    return value  # type: ignore[no-any-return]


class RunParams(Params):
    """How the nodes start, find each other and end: see `ef.run`, whose options these are."""

    numWorkers = declare("numWorkers", 'nodes that train together, or "auto" for every slot', to_workers)
    numPs = declare("numPs", "parameter servers of an asynchronous strategy", to_count("numPs"))
    gpusPerWorker = declare("gpusPerWorker", "GPUs of each worker, its own", TypeConverters.toInt)
    gpuSource = declare(
        "gpuSource",
        '"spark": GPUs that Spark schedules; "nvml": free GPUs of the host, where Spark manages none',
        to_choice("gpuSource", get_args(GpuSource)),
    )
    gpuResource = declare(
        "gpuResource", "Spark's name for its GPUs, if not gpu", to_text("gpuResource", check_resource)
    )
    transport = declare(
        "transport",
        'how workers exchange gradients: "ring", "collectives" (NCCL on GPUs), or "auto"',
        to_choice("transport", get_args(TransportChoice)),
    )
    strategy = declare(
        "strategy",
        '"data_parallel": synchronous; "parameter_server", "periodic": asynchronous',
        to_choice("strategy", STRATEGIES),
    )
    tensorboardDir = declare(
        "tensorboardDir",
        "shared storage for event files; TensorBoard shows them during the training",
        to_text("tensorboardDir", check_path),
    )
    tensorboardHost = declare(
        "tensorboardHost", "the interface that TensorBoard listens on", TypeConverters.toString
    )
    checkpointDir = declare(
        "checkpointDir", "shared storage for checkpoints; kept", to_text("checkpointDir", check_path)
    )
    maxRestarts = declare("maxRestarts", "restarts of all nodes after a lost one", TypeConverters.toInt)
    restartOnError = declare(
        "restartOnError",
        "whether an exception of the model or of a callback costs a restart too",
        TypeConverters.toBoolean,
    )
    spoolDir = declare(
        "spoolDir",
        "local folder for the rows of each worker; Spark's own if not set",
        to_text("spoolDir", check_path),
    )
    spoolLimit = declare("spoolLimit", "most bytes of one worker's rows there", to_count("spoolLimit"))
    startTimeout = declare(
        "startTimeout", "seconds until all nodes must have joined", to_seconds("startTimeout", START_TIMEOUT)
    )
    executorTimeout = declare(
        "executorTimeout",
        "seconds in which all executors must register after the first one has",
        to_seconds("executorTimeout", EXECUTOR_TIMEOUT),
    )
    joinTimeout = declare(
        "joinTimeout",
        "seconds until workers must have connected to each other",
        to_seconds("joinTimeout", JOIN_TIMEOUT),
    )
    exchangeTimeout = declare(
        "exchangeTimeout",
        "seconds after which a node that does not answer during training is an error",
        to_seconds("exchangeTimeout", EXCHANGE_TIMEOUT),
    )
    preload = declare(
        "preload", "whether nodes import TensorFlow while their rows arrive", TypeConverters.toBoolean
    )
    verbose = declare("verbose", "whether to show progress and the nodes' output", TypeConverters.toBoolean)
    encrypt = declare(
        "encrypt",
        "whether everything between driver and nodes is encrypted; always so where Spark encrypts its traffic",
        TypeConverters.toBoolean,
    )
    allowUnencrypted = declare(
        "allowUnencrypted",
        "whether TensorFlow's own servers, which cannot encrypt, may run where everything else is encrypted",
        TypeConverters.toBoolean,
    )
    driverHost = declare(
        "driverHost",
        "the address at which executors reach the driver; Spark's if not set",
        TypeConverters.toString,
    )
    portRange = declare(
        "portRange",
        'ports that driver and nodes may listen on, such as "30000-30100"',
        to_text("portRange", parse_port_range),
    )
    record = declare(
        "record", "folder for a record of what happens, on any storage", to_text("record", check_path)
    )
    page = declare("page", "whether to serve a page of the run; a number is its port", to_page)
