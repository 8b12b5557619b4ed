"""What `ef.run` and `ef.plan` do with their arguments before anything starts: resolve, check, pickle."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from emberflow.config import Count, RunConfig
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow._driver.cluster_facts import ClusterFacts
    from emberflow._driver.supervisor import Program
    from emberflow.live_cluster import Cluster


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that could start.

    Attributes:
        spark: Its session.
        config: Its options, with paths resolved.
        facts: What is known of the cluster.
        program: Your function and its data.
    """

    spark: "SparkSession"
    config: RunConfig
    facts: "ClusterFacts"
    program: "Program"


def workers_of(workers: Count | None, cluster: "Cluster | None") -> Count:
    """Return how many workers a run has: those of its idle cluster, if the caller does not say."""
    if workers is not None:
        return workers
    if cluster is None:
        raise ConfigError(
            '`workers` must be a whole number, 1 or more, or "auto". Received: it was left out.',
            fix="Pass workers=2, or cluster=... with an idle cluster.",
        )
    return cluster.workers


def with_gpus_of(cluster: "Cluster | None", config: RunConfig) -> RunConfig:
    """Return the options with the GPUs of the idle cluster, if it has any."""
    if cluster is None or not cluster.gpus:
        return config
    gpus, source, resource = cluster._gpu_options(config.gpus)  # noqa: SLF001 - a class of ours
    return dataclasses.replace(config, gpus=gpus, gpu_source=source, gpu_resource=resource)


@contextmanager
def prepared(
    fn: Callable[..., Any],
    config: RunConfig,
    *,
    data: Any,
    spark: "SparkSession | None",
    cluster: "Cluster | None",
) -> Iterator[Prepared]:
    """Check all that can be checked without a node, and hold the pickled function for the length of the block."""
    from emberflow._driver.cluster_facts import active_session, check_facts, read_facts
    from emberflow._driver.function_needs import packages_used
    from emberflow._driver.interpreter import is_connect
    from emberflow._driver.paths import with_resolved_paths
    from emberflow._driver.row_routing import data_spec, read_data, with_resolved_files
    from emberflow._driver.shipping import shipment_of
    from emberflow._driver.supervisor import Program

    config = with_gpus_of(cluster, config)
    run_data = read_data(data)
    session = spark or run_data.session or (cluster.spark if cluster else active_session())
    config = with_resolved_paths(session, config)
    run_data = with_resolved_files(session, run_data)
    with closing(shipment_of(fn, is_connect=is_connect(session))) as shipment:
        facts = read_facts(session, config.gpu_resource)
        check_facts(facts, config)
        least = getattr(fn, "least_value_bytes", 0)
        spec = data_spec(run_data, config)
        warm = cluster._warm_access() if cluster else None  # noqa: SLF001 - a class of ours
        early = packages_used(fn) if config.preload and spec.names else ()
        program = Program(fn=shipment, least_value=least, data=run_data, spec=spec, warm=warm, preload=early)
        yield Prepared(spark=session, config=config, facts=facts, program=program)
