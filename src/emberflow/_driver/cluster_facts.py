"""What this Spark session is and offers, read once before anything starts."""

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emberflow._driver.allocation import ENABLED, Allocation, read_allocation
from emberflow._driver.interpreter import is_connect, is_local
from emberflow._driver.paths import path_rules_of
from emberflow._driver.spark_versions import CONNECT, check_offers
from emberflow._driver.storage_settings import storage_settings_of
from emberflow._plan.path_rules import PathRules
from emberflow._protocol.sockets import own_address_towards
from emberflow.config import PortRange, RunConfig, check_resource, parse_port_range
from emberflow.errors import ConfigError, EncryptionError
from emberflow.storage import StorageSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("emberflow")

PARAMETER_SERVERS = "spark.executorEnv.NUM_TF_PS"
PORT_RANGE = "spark.emberflow.portRange"
GPU_RESOURCE = "spark.emberflow.gpuResource"
RESULT_LIMIT = "spark.driver.maxResultSize"
# `spark.network.crypto.saslFallback` is not among them: it says what to do for old peers, and asks for nothing.
TRAFFIC_ENCRYPTION = (
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
)
FILE_ENCRYPTION = "spark.io.encryption.enabled"
ENCRYPTION = (*TRAFFIC_ENCRYPTION, FILE_ENCRYPTION)


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """What is known of the cluster; None where Spark Connect does not say.

    Attributes:
        is_connect: Whether the session is a Spark Connect client.
        master: Spark's master URL.
        driver_host: The address at which executors reach this process.
        bind_host: The address to listen on for them.
        allocation: What is known of the executors that may come, where Spark adds and removes executors by itself.
        encryption: Settings that ask for encrypted traffic or files.
        cpus_per_task: Spark's spark.task.cpus.
        application: Spark's id of the application.
        gpu_resource: Spark's name for GPUs.
        gpus_per_executor: Spark's spark.executor.resource.gpu.amount, or that of the resource with this name.
        gpus_per_task: Spark's spark.task.resource.gpu.amount, likewise, which may be a fraction.
        parameter_servers: NUM_TF_PS of the executors' environment as it stands there, for ps="auto".
        port_range: The setting spark.emberflow.portRange.
        result_limit: Most bytes that a job may bring back as rows, with some room for Spark's own; 0 for any number.
        paths: Which URLs are meant by paths without a scheme.
        storage: Hadoop's settings, with which nodes and tasks open URLs.
    """

    is_connect: bool
    master: str | None = None
    driver_host: str | None = None
    bind_host: str = "127.0.0.1"
    allocation: Allocation | None = None
    encryption: tuple[str, ...] = ()
    cpus_per_task: int = 1
    application: str = ""
    gpu_resource: str = "gpu"
    gpus_per_executor: int = 0
    gpus_per_task: float = 0.0
    parameter_servers: str = "0"
    port_range: PortRange | None = None
    result_limit: int = 0
    paths: PathRules = field(default_factory=PathRules)
    storage: StorageSettings = field(default_factory=StorageSettings)

    @property
    def is_local(self) -> bool:
        """Whether Spark runs its tasks on this very process' JVM, without executors."""
        return is_local(self.master or "")

    @property
    def encrypts_traffic(self) -> bool:
        """Whether Spark encrypts what its processes send each other."""
        return any(name in TRAFFIC_ENCRYPTION for name in self.encryption)

    @property
    def encrypts_files(self) -> bool:
        """Whether Spark encrypts what it keeps on local disk."""
        return FILE_ENCRYPTION in self.encryption


def active_session() -> "SparkSession":
    """Return the session that is active in this thread."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        raise ConfigError(
            "A Spark session must be active. Received: spark=None, and none is active.",
            fix="Pass spark=SparkSession.builder.getOrCreate().",
        )
    return session


def read_facts(spark: "SparkSession", gpu_resource: str | None = None) -> ClusterFacts:
    """Ask the session what it is; wait for nothing."""
    gpu = gpu_resource or spark.conf.get(GPU_RESOURCE, None) or "gpu"
    check_resource(GPU_RESOURCE, gpu)
    if is_connect(spark):
        check_offers(spark, CONNECT, fix="Use a classic session: start the driver with spark-submit.")
        host = own_address_towards(_connect_server(spark))
        return ClusterFacts(
            is_connect=True,
            driver_host=host,
            bind_host=host,
            gpu_resource=gpu,
            port_range=_port_range(spark),
            result_limit=result_limit(spark.conf.get(RESULT_LIMIT, "1g")),
            paths=path_rules_of(spark),
            storage=storage_settings_of(spark),
        )
    context = spark.sparkContext
    conf = context.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    master = str(context.master)
    return ClusterFacts(
        is_connect=False,
        master=master,
        driver_host=host,
        bind_host=conf.get("spark.driver.bindAddress") or host,
        allocation=read_allocation(conf, master, gpu)
        if is_true(conf.get(ENABLED)) and not is_local(master)
        else None,
        encryption=tuple(name for name in ENCRYPTION if is_true(conf.get(name))),
        cpus_per_task=int(conf.get("spark.task.cpus") or 1),
        # A local master has no executors, and Spark no profiles of tasks there.
        application=str(context.applicationId),
        gpu_resource=gpu,
        gpus_per_executor=0
        if is_local(master)
        else int(conf.get(f"spark.executor.resource.{gpu}.amount") or 0),
        gpus_per_task=0.0 if is_local(master) else float(conf.get(f"spark.task.resource.{gpu}.amount") or 0),
        parameter_servers=conf.get(PARAMETER_SERVERS) or "0",
        port_range=_port_range(spark),
        result_limit=result_limit(conf.get(RESULT_LIMIT) or "1g"),
        paths=path_rules_of(spark),
        storage=storage_settings_of(spark),
    )


def is_true(text: str | None) -> bool:
    """Tell whether Spark reads a setting as true: it ignores case, and white space around the word.

    >>> is_true("true"), is_true(" TRUE "), is_true("yes"), is_true(None)
    (True, True, False, False)
    """
    return (text or "").strip().lower() == "true"


def _port_range(spark: "SparkSession") -> PortRange | None:
    text = spark.conf.get(PORT_RANGE, "")
    return parse_port_range(PORT_RANGE, text) if text else None


def result_limit(text: str | None) -> int:
    """Return what of Spark's limit for results is left to values: nine tenths.

    >>> result_limit("1g"), result_limit("10mb"), result_limit("1000"), result_limit("0")
    (966367641, 9437184, 900, 0)
    """
    found = re.fullmatch(r"(\d+)([kmgtp]?)b?", (text or "1g").strip().lower())
    if found is None:
        return result_limit("1g")
    unit: int = 1024 ** " kmgtp".index(found[2] or " ")
    return int(found[1]) * unit * 9 // 10


def encrypts(facts: ClusterFacts, config: RunConfig) -> bool:
    """Tell whether a run encrypts all of its own traffic: where Spark does, or you ask for it."""
    return config.encrypt or facts.encrypts_traffic


def check_facts(facts: ClusterFacts, config: RunConfig) -> None:
    """Refuse what is known to fail or to be unsafe; warn of what cannot be known."""
    if facts.is_connect and not (config.encrypt or config.allow_unencrypted):
        log.warning(
            "Spark Connect does not tell whether the cluster encrypts its traffic or has enough slots: gradients are "
            "not encrypted, and a start that cannot succeed ends at start_timeout. Pass encrypt=True, or "
            "allow_unencrypted=True to say that this is known."
        )
    if encrypts(facts, config) and not config.allow_unencrypted:
        _check_encryptable(facts, config)


def _check_encryptable(facts: ClusterFacts, config: RunConfig) -> None:
    """Refuse what trains by TensorFlow's own servers, which cannot encrypt."""
    asked = ", ".join(f"{name}=true" for name in facts.encryption) or "encrypt=True"
    if config.strategy == "parameter_server":
        chosen, instead = 'strategy="parameter_server"', 'strategy="periodic"'
    elif config.transport == "collectives" and config.workers != 1:
        chosen, instead = 'transport="collectives"', 'transport="ring"'
    else:
        return
    raise EncryptionError(
        f"This run must be encrypted, and {chosen} uses TensorFlow's own servers, which cannot encrypt. "
        f"Received: {asked}.",
        fix=f"Pass {instead}, which is encrypted; or, if the network between your hosts is trusted, "
        "allow_unencrypted=True (KerasEstimator: allowUnencrypted=True; emberflow train: --allow-unencrypted).",
    )


def _connect_server(spark: "SparkSession") -> str:
    return str(getattr(getattr(spark.client, "_builder", None), "host", "127.0.0.1"))
