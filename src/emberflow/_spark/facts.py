"""What this Spark session is and offers, read once before anything starts."""

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emberflow.errors import ClusterError, EncryptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTLE_SECONDS = 5.0
ENCRYPTION = ("spark.ssl.enabled", "spark.network.crypto.enabled")


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """What is known of the cluster; None where Spark Connect does not say.

    Attributes:
        is_connect: Whether the session is a Spark Connect client.
        master: Spark's master URL.
        slots: Tasks that can run at once.
        driver_host: The address at which executors reach this process.
        bind_host: The address to listen on for them.
        dynamic_allocation: Whether Spark adds and removes executors by itself.
        encryption: Settings that ask for encrypted traffic.
    """

    is_connect: bool
    master: str | None = None
    slots: int | None = None
    driver_host: str | None = None
    bind_host: str = "127.0.0.1"
    dynamic_allocation: bool | None = None
    encryption: tuple[str, ...] = ()


def is_connect(spark: "SparkSession") -> bool:
    """Tell whether the session is a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def read_facts(spark: "SparkSession") -> ClusterFacts:
    """Ask the session what it is; wait for nothing."""
    if is_connect(spark):
        host = _own_address_towards(spark)
        return ClusterFacts(is_connect=True, driver_host=host, bind_host=host)
    context = spark.sparkContext
    conf = context.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    master = str(context.master)
    is_local = master == "local" or master.startswith("local[")
    return ClusterFacts(
        is_connect=False,
        master=master,
        slots=count_slots(spark),
        driver_host=host,
        bind_host=conf.get("spark.driver.bindAddress") or host,
        dynamic_allocation=conf.get("spark.dynamicAllocation.enabled", "false") == "true" and not is_local,
        encryption=tuple(name for name in ENCRYPTION if conf.get(name, "false") == "true"),
    )


def count_slots(spark: "SparkSession") -> int:
    """Return how many tasks Spark can run at once, by the same sum as its own barrier check."""
    scala_context = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no public way
    profile = scala_context.resourceProfileManager().defaultResourceProfile()
    return int(scala_context.maxNumConcurrentTasks(profile))


def expected_slots(spark: "SparkSession") -> int | None:
    """Return the slots that the settings promise, or None where they do not tell.

    Executors register one after another: right after the session's start fewer answer than will come.
    """
    context = spark.sparkContext
    conf = context.getConf()
    cpus = int(conf.get("spark.task.cpus") or 1)
    local_cluster = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", str(context.master))
    if local_cluster:
        return int(local_cluster[1]) * (int(local_cluster[2]) // cpus)
    instances, cores = conf.get("spark.executor.instances"), conf.get("spark.executor.cores")
    if instances and cores:
        return int(instances) * (int(cores) // cpus)
    if most := conf.get("spark.cores.max"):
        return int(most) // cpus
    return None


def wait_for_slots(spark: "SparkSession", wanted: int | None, timeout: float) -> int:
    """Return the number of slots once it is `wanted`, or what there is when no more will come.

    With `wanted` None, waits for as many as the settings promise. A session whose executors are all up answers
    at once; one that is just starting gets until `timeout` for its first executor, and some seconds more for
    the others.
    """
    goal = wanted or expected_slots(spark) or 1
    deadline = time.monotonic() + timeout
    slots = count_slots(spark)
    settled: float | None = None
    while slots < goal and time.monotonic() < deadline:
        if slots and settled is None:
            settled = time.monotonic() + SETTLE_SECONDS
            deadline = min(deadline, settled)
        time.sleep(0.05)  # Spark offers nothing to wait on here
        slots = count_slots(spark)
    return slots


def check_facts(facts: ClusterFacts, allow_unencrypted: bool) -> None:
    """Refuse what is known to fail or to be unsafe."""
    if facts.dynamic_allocation:
        raise ClusterError(
            "Nodes start together in one barrier stage, which Spark refuses under dynamic allocation. "
            "Received: spark.dynamicAllocation.enabled=true.",
            fix="Start the session with spark.dynamicAllocation.enabled=false and a fixed "
            "spark.executor.instances.",
        )
    if facts.encryption and not allow_unencrypted:
        raise EncryptionError(
            "This session encrypts its traffic, but TensorFlow's traffic between nodes is not encrypted, and "
            f"the nodes' wire to the driver is keyed only. Received: {', '.join(facts.encryption)}=true.",
            fix="Pass allow_unencrypted=True if the network between your hosts is trusted.",
        )


def check_slots(slots: int, nodes: int, master: str | None) -> None:
    """Refuse a gang that Spark cannot seat: it would wait ten minutes and then fail with a riddle."""
    if slots < nodes:
        raise ClusterError(
            f"The run needs {nodes} task slots at the same time. Received: {slots} slots from {master}.",
            fix=f"Pass workers={slots} or fewer, or start the session with more executors or cores "
            "(spark.executor.instances, spark.executor.cores, spark.cores.max)."
            if slots
            else "Start executors first: none has registered with the driver.",
        )


def _own_address_towards(spark: "SparkSession") -> str:
    """Return the address of the interface from which this client reaches its Connect server."""
    import socket

    host = getattr(getattr(spark.client, "_builder", None), "host", "127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # a UDP connect sends nothing; it only picks the route
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
