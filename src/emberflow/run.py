"""`ef.run`: one function on all nodes of a cluster that exists as long as the function runs."""

import logging
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emberflow._choices import GpuSource, Strategy, TransportChoice
from emberflow._names import names_checked
from emberflow._preparation import Prepared, prepared, workers_of
from emberflow.config import Count, RunConfig
from emberflow.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow._node.context import Context
    from emberflow.live_cluster import Cluster

log = logging.getLogger("emberflow")


@names_checked
def run(
    fn: "Callable[[Context], Any]",
    *,
    workers: Count | None = None,
    data: Any = None,
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
    cache: bool = True,
    spool_dir: str | None = None,
    spool_limit: int | None = None,
    spark: "SparkSession | None" = None,
    cluster: "Cluster | None" = None,
    start_timeout: float = 120.0,
    executor_timeout: float = 5.0,
    join_timeout: float = 60.0,
    exchange_timeout: float = 600.0,
    evaluator_timeout: float = 60.0,
    preload: bool = True,
    verbose: bool = True,
    encrypt: bool = False,
    allow_unencrypted: bool = False,
    driver_host: str | None = None,
    port_range: str | None = None,
    record: str | None = None,
    page: bool | int = False,
) -> Result:
    """Run a TensorFlow program on Spark's executors: one process per worker, all started together.

    Args:
        fn: Your function, called as ``fn(ctx)`` in every node.
        workers: How many nodes train, the chief included; "auto": every slot that Spark offers. If left out, as many
            as `cluster` has.
        data: A DataFrame, ``ef.Parquet(...)``, ``ef.TFRecords(...)``, or a dict of these by name, for
            ``ctx.dataset``. Spark sends the rows of DataFrames to the nodes; the nodes read files themselves. The
            name of a single source is "train".
        ps: Parameter servers in addition to the workers, without GPUs; "auto" reads NUM_TF_PS from Spark's executor
            environment.
        evaluator: Start one more node that evaluates while the others train.
        gpus: GPUs of each worker, its own, assigned by Spark's scheduler; those of `cluster`, where it has any.
        gpu_source: "nvml": nodes select free GPUs of their host, where Spark manages none.
        gpu_resource: Spark's name for its GPUs, if neither "gpu" nor the setting spark.emberflow.gpuResource.
        transport: How ``ctx.distribute`` exchanges gradients: "ring", an authenticated socket ring; "collectives",
            TensorFlow's own, which use NCCL; "auto": the ring on CPUs and the collectives on GPUs; "none": not at
            all, and no port is opened for it.
        strategy: How the nodes train together. "data_parallel": synchronous; every node is needed.
            "parameter_server" and "periodic": asynchronous; parameter servers do not call your function, each
            worker proceeds at its own speed, and a lost worker is tolerated.
        tensorboard: Folder of event files that TensorBoard shows during the run; it runs on the chief's host.
        tensorboard_host: The interface that TensorBoard listens on.
        checkpoint_dir: Storage that all nodes share, for ``ctx.save_checkpoint``; kept afterwards.
        max_restarts: How often all nodes may be restarted after a lost node.
        restart_on_error: Restart after an exception of your function too.
        cache: Keep the rows on local disk for later epochs; False streams them once, in the order of their
            arrival.
        spool_dir: Local folder for the rows; Spark's own if left out.
        spool_limit: Most bytes of one worker's rows there.
        spark: The session; that of the data, or the active one, if left out. Classic or Spark Connect.
        cluster: An idle cluster, ``ef.cluster(workers=2)``: nodes then start with TensorFlow imported already.
        start_timeout: Seconds until all nodes must have joined.
        executor_timeout: Seconds in which all executors must register after the first one, within `start_timeout`.
        join_timeout: Seconds until nodes that train together must have connected to each other.
        exchange_timeout: Seconds after which a node that does not answer another during training is an error.
        evaluator_timeout: Seconds for a last evaluation after training is done.
        preload: Let nodes whose function uses TensorFlow or Keras import them while their rows arrive, before the
            function begins; False leaves every import to the function.
        verbose: Show progress and the nodes' output on the driver.
        encrypt: Encrypt everything that driver and nodes send each other, gradients and rows too; always so where
            Spark encrypts its traffic.
        allow_unencrypted: Let TensorFlow's own servers run where everything else is encrypted; they cannot encrypt.
        driver_host: The address at which executors reach this process, if not the one that Spark uses.
        port_range: Ports that this process and the nodes may listen on, such as "30000-30100", for firewalls; by
            default Spark's setting spark.emberflow.portRange, or any free ports.
        record: Folder for a record of what happens, on any storage: ``emberflow runs`` lists and compares the runs
            there. Each run has a folder of its own in it. By default Spark's setting spark.emberflow.record, or none.
        page: Serve a page of the run for a browser while it goes on: start, curves, nodes, output. Its address, on
            this machine's loopback, holds a token; it is printed, and opened where there is a desktop. A number is
            the port.

    Returns:
        The chief's value, one report per node, and the metrics that nodes reported.

    Raises:
        ConfigError: The arguments are wrong, or the function cannot be pickled.
        ClusterError: Spark has too few slots for the nodes, or they did not join in time.
        NodeFailedError: Your function raised on a node; its own traceback is in the message.
        NodeLostError: A node was killed or crashed.
        RunCancelledError: The Spark job was cancelled.

    Example:
        >>> def whoami(ctx):
        ...     return f"{ctx.role} of {ctx.workers}"
        >>> ef.run(whoami, workers=2).value  # doctest: +SKIP
        'chief of 2'
    """
    config = RunConfig(
        workers=workers_of(workers, cluster),
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
        cache=cache,
        spool_dir=spool_dir,
        spool_limit=spool_limit,
        start_timeout=start_timeout,
        executor_timeout=executor_timeout,
        join_timeout=join_timeout,
        exchange_timeout=exchange_timeout,
        evaluator_timeout=evaluator_timeout,
        preload=preload,
        verbose=verbose,
        encrypt=encrypt,
        allow_unencrypted=allow_unencrypted,
        driver_host=driver_host,
        port_range=port_range,
        record=record,
        page=page,
    )
    with prepared(fn, config, data=data, spark=spark, cluster=cluster) as ready:
        return _run(fn, ready)


def _run(fn: "Callable[[Context], Any]", ready: Prepared) -> Result:
    from emberflow._driver.console import Console
    from emberflow._driver.recording import failure_recorded, options_of, record_plan, start_recording
    from emberflow._driver.results import result_of
    from emberflow._driver.run_plan import make_plan
    from emberflow._driver.slots import place_nodes, slots_held
    from emberflow._driver.supervisor import supervise
    from emberflow._record.recorder import Recorder
    from emberflow.page.live_cell import cell_shown
    from emberflow.page.opening import page_shown

    spark, program, config, facts = ready.spark, ready.program, ready.config, ready.facts
    started, run_id = time.monotonic(), secrets.token_hex(4)
    options = options_of(config)
    recorder = Recorder()
    shown = cell_shown(recorder, wanted=config.verbose)
    with page_shown(recorder, config.page), shown, failure_recorded(recorder):
        start_recording(recorder, spark, run_id, "run", fn, record=config.record, options=options)
        nodes = place_nodes(spark, config, facts, recorder=recorder)
        has_rows = bool(program.data.frames)
        plan = make_plan(
            config, facts, nodes, waits_for_rows=has_rows, preload=program.preload, run_id=run_id
        )
        log.debug("plan: %s", plan)
        record_plan(recorder, plan, nodes)
        with (
            Console(nodes, config.verbose) as console,
            slots_held(spark, plan, facts, console.status, recorder),
        ):
            done = supervise(spark, program, plan, config, facts, console, recorder=recorder)
        return result_of(done, started, recorder)
