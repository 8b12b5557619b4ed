"""From the options of a run and what the cluster offers to its plan."""

import secrets
import sys

from emberflow._choices import Transport
from emberflow._driver.allocation import REASON
from emberflow._driver.cluster_facts import ClusterFacts, encrypts
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node
from emberflow.config import RunConfig, parse_port_range


def make_plan(
    config: RunConfig,
    facts: ClusterFacts,
    nodes: tuple[Node, ...],
    *,
    waits_for_rows: bool = False,
    is_live: bool = False,
    preload: tuple[str, ...] = (),
    run_id: str = "",
) -> RunPlan:
    """Return the plan of a run's first attempt.

    Args:
        config: The options of the run.
        facts: What is known of the cluster.
        nodes: The nodes to start.
        waits_for_rows: Whether Spark computes rows before the first node can start.
        is_live: Whether nodes outlive the Spark stage that starts them; they always meet at the driver then.
        preload: Packages that nodes import while their rows arrive.
        run_id: The run's name, if it has one already.
    """
    is_encrypted = encrypts(facts, config)
    has_barrier = facts.allocation is None
    may_be_clear = config.allow_unencrypted or not is_encrypted
    return RunPlan(
        run_id=run_id or secrets.token_hex(4),
        nodes=nodes,
        rendezvous="barrier" if facts.is_connect and has_barrier and not is_live else "driver",
        launch="barrier" if has_barrier else "independent",
        launch_reason="no dynamic allocation is known of" if has_barrier else REASON,
        driver_address=None,
        start_timeout=config.start_timeout,
        join_timeout=config.join_timeout,
        exchange_timeout=config.exchange_timeout,
        evaluator_timeout=config.evaluator_timeout,
        # Of a live cluster the last lines are shown at any time, and a record has them.
        forward_logs=config.verbose or is_live or config.record is not None or config.page is not False,
        log_copy="none" if facts.is_local else "all",
        python=sys.version_info[:2],
        waits_for_rows=waits_for_rows,
        preload=preload,
        gpus=config.gpus,
        gpu_source=config.gpu_source,
        gpu_resource=facts.gpu_resource,
        transport=_transport(config, nodes, may_be_clear=may_be_clear),
        encrypt=is_encrypted,
        encrypts_files=facts.encrypts_files,
        allows_tf_servers=may_be_clear,
        strategy=config.strategy,
        tensorboard=(config.tensorboard, config.tensorboard_host) if config.tensorboard else None,
        port_range=parse_port_range("port_range", config.port_range)
        if config.port_range
        else facts.port_range,
        paths=facts.paths,
        is_live=is_live,
        is_local=facts.is_local,
    )


def _transport(config: RunConfig, nodes: tuple[Node, ...], *, may_be_clear: bool) -> Transport:
    if config.transport == "auto":
        # Workers of parameter servers run a TensorFlow server of their own, at the address of the collectives'.
        has_ps = any(node.role == "ps" for node in nodes)
        return "collectives" if config.gpus and not has_ps and may_be_clear else "ring"
    return config.transport
