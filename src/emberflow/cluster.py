"""`ef.cluster`: start nodes that stay up."""

import dataclasses
import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emberflow._choices import GpuSource, Strategy, TransportChoice
from emberflow._names import names_checked
from emberflow.config import Count, RunConfig
from emberflow.errors import ConfigError
from emberflow.live_cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow._driver.cluster_facts import ClusterFacts
    from emberflow._driver.live_run import LiveRun
    from emberflow._node.context import Context

log = logging.getLogger("emberflow")


@names_checked
def cluster(
    fn: "Callable[[Context], Any] | None" = None,
    *,
    workers: Count,
    ps: Count = 0,
    evaluator: bool = False,
    gpus: int = 0,
    gpu_source: GpuSource = "spark",
    gpu_resource: str | None = None,
    transport: TransportChoice = "auto",
    strategy: Strategy = "data_parallel",
    tensorboard: str | None = None,
    tensorboard_host: str = "127.0.0.1",
    checkpoint_dir: str | None = None,
    max_restarts: int = 0,
    restart_on_error: bool = False,
    spool_dir: str | None = None,
    spool_limit: int | None = None,
    spark: "SparkSession | None" = None,
    start_timeout: float = 120.0,
    executor_timeout: float = 5.0,
    join_timeout: float = 60.0,
    exchange_timeout: float = 600.0,
    evaluator_timeout: float = 60.0,
    verbose: bool = True,
    encrypt: bool = False,
    allow_unencrypted: bool = False,
    driver_host: str | None = None,
    port_range: str | None = None,
    record: str | None = None,
) -> Cluster:
    """Start nodes that stay up until they are stopped, and feed them with one DataFrame after the other.

    The stage that starts the nodes ends when all are up, so that its slots are free for your other jobs, also on
    executors of one core; under dynamic allocation it stays, since Spark releases executors without tasks. A node
    never outlives its executor, the Spark application or this process. Use it as a context manager, or call
    `Cluster.stop`.

    Args:
        fn: Your function, called as ``fn(ctx)`` in every node. It takes what you feed from ``ctx.rounds()``,
            ``ctx.stream()`` or ``ctx.requests()``, and returns when these end. Without it the cluster is idle: for
            ``ef.run(other, cluster=cluster)`` and ``KerasEstimator(cluster=cluster)``, whose nodes then start with
            TensorFlow imported already, on the GPUs of the cluster.
        workers: How many nodes train, the chief included; "auto": every slot that Spark offers.
        ps: Parameter servers in addition to the workers, without GPUs; "auto" reads NUM_TF_PS from Spark's executor
            environment.
        evaluator: Start one more node that evaluates while the others train.
        gpus: GPUs of each worker, its own, assigned by Spark's scheduler and held until the cluster is stopped.
        gpu_source: "nvml": nodes select free GPUs of their host, where Spark manages none.
        gpu_resource: Spark's name for its GPUs, if neither "gpu" nor the setting spark.emberflow.gpuResource.
        transport: How ``ctx.distribute`` exchanges gradients; see `emberflow.run`.
        strategy: How the nodes train together; see `emberflow.run`.
        tensorboard: Folder of event files that TensorBoard shows; it runs on the chief's host.
        tensorboard_host: The interface that TensorBoard listens on.
        checkpoint_dir: Storage that all nodes share, for ``ctx.save_checkpoint``; kept afterwards.
        max_restarts: How often all nodes may be restarted after a lost node. A call that was interrupted is then
            fed again from its first row, to your function, which begins anew from its last checkpoint.
        restart_on_error: Restart after an exception of your function too.
        spool_dir: Local folder for the rows of a round; Spark's own if left out.
        spool_limit: Most bytes of one worker's rows there.
        spark: The session; the active one if left out. Classic, or Spark Connect where executors reach this process.
        start_timeout: Seconds until all nodes must have joined.
        executor_timeout: Seconds in which all executors must register after the first one, within `start_timeout`.
        join_timeout: Seconds until nodes that train together must have connected to each other.
        exchange_timeout: Seconds after which a node that does not answer another during training is an error.
        evaluator_timeout: Seconds for a last evaluation after training is done.
        verbose: Show progress and the nodes' output on the driver.
        encrypt: Encrypt everything that driver, feeding tasks and nodes send each other; always so where Spark
            encrypts its traffic.
        allow_unencrypted: Let TensorFlow's own servers run where everything else is encrypted; they cannot encrypt.
        driver_host: The address at which executors reach this process, if not the one that Spark uses.
        port_range: Ports that this process and the nodes may listen on, such as "30000-30100", for firewalls; by
            default Spark's setting spark.emberflow.portRange, or any free ports.
        record: Folder for a record of what happens, on any storage: ``emberflow runs`` lists and compares the runs
            there. Each run has a folder of its own in it. By default Spark's setting spark.emberflow.record, or none.

    Returns:
        The cluster, with all nodes up.

    Raises:
        ConfigError: The arguments are wrong, or the function cannot be pickled.
        ClusterError: Spark has too few slots for the nodes, they did not join in time, or cannot reach this process.
        NodeFailedError: Your function raised before all nodes were up.

    Example:
        >>> def learn(ctx):
        ...     model = ctx.distribute(build_model())
        ...     for round in ctx.rounds():
        ...         model.fit(round.dataset(features="x", label="y", batch_size=64))
        >>> with ef.cluster(learn, workers=2) as cluster:  # doctest: +SKIP
        ...     cluster.train(monday)
        ...     cluster.train(tuesday, epochs=2)
    """
    from emberflow._driver.cluster_facts import active_session, check_facts, read_facts
    from emberflow._driver.paths import with_resolved_paths
    from emberflow._node.idle import stay_idle

    config = RunConfig(
        workers=workers,
        ps=ps,
        evaluator=evaluator,
        gpus=gpus,
        gpu_source=gpu_source,
        gpu_resource=gpu_resource,
        transport=transport,
        strategy=strategy,
        tensorboard=tensorboard,
        tensorboard_host=tensorboard_host,
        checkpoint_dir=checkpoint_dir,
        max_restarts=max_restarts,
        restart_on_error=restart_on_error,
        spool_dir=spool_dir,
        spool_limit=spool_limit,
        start_timeout=start_timeout,
        executor_timeout=executor_timeout,
        join_timeout=join_timeout,
        exchange_timeout=exchange_timeout,
        evaluator_timeout=evaluator_timeout,
        verbose=verbose,
        encrypt=encrypt,
        allow_unencrypted=allow_unencrypted,
        driver_host=driver_host,
        port_range=port_range,
        record=record,
    )
    if fn is None:
        config = _idle(config)
    session = spark or active_session()
    config = with_resolved_paths(session, config)
    facts = read_facts(session, config.gpu_resource)
    check_facts(facts, config)
    return Cluster(_started(session, fn or stay_idle, config, facts), session, is_idle=fn is None)


def _idle(config: RunConfig) -> RunConfig:
    """Return the options of a cluster that only keeps TensorFlow and GPUs at hand; helpers are refused."""
    if config.ps or config.evaluator:
        raise ConfigError(
            "An idle cluster has workers only: each run says what it needs beside them. "
            f"Received: ps={config.ps}, evaluator={config.evaluator}.",
            fix="Pass these to ef.run(fn, cluster=cluster, ...) instead.",
        )
    # Its nodes exchange nothing; TensorFlow's collectives would take the GPUs' memory, which is for its runs.
    return dataclasses.replace(config, transport="none")


def _started(
    spark: "SparkSession", fn: "Callable[[Context], Any]", config: RunConfig, facts: "ClusterFacts"
) -> "LiveRun":
    """Return the run with all nodes up."""
    from emberflow._driver.live_run import LiveRun
    from emberflow._driver.recording import failure_recorded, options_of, record_plan, start_recording
    from emberflow._driver.row_routing import RunData, data_spec
    from emberflow._driver.run_plan import make_plan
    from emberflow._driver.shipping import shipment_of
    from emberflow._driver.slots import place_nodes
    from emberflow._driver.supervisor import Program
    from emberflow._record.recorder import Recorder

    data = RunData()
    run_id, options = secrets.token_hex(4), options_of(config)
    recorder = Recorder()
    with failure_recorded(recorder):
        start_recording(recorder, spark, run_id, "cluster", fn, record=config.record, options=options)
        nodes = place_nodes(spark, config, facts, is_live=True, recorder=recorder)
        plan = make_plan(config, facts, nodes, is_live=True, run_id=run_id)
        log.debug("plan: %s", plan)
        record_plan(recorder, plan, nodes)
        shipment = shipment_of(fn, is_connect=facts.is_connect)
        program = Program(fn=shipment, data=data, spec=data_spec(data, config))
        run = LiveRun(spark, program, plan, config, facts, recorder)
        run.start()
    return run
