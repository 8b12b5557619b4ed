"""Every socket that others dial is in the range: by argument, and by Spark's setting."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import emberflow as ef
from emberflow.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")

SETTING = "spark.emberflow.portRange"
COUNT = 12


@pytest.fixture
def free_ports() -> Iterator[range]:
    """Return ports in a row that are free, below those that the kernel gives to others."""
    for first in range(20_000, 32_000, COUNT):
        ports = range(first, first + COUNT)
        with suppress(OSError), ExitStack() as held:
            for port in ports:
                held.enter_context(socket.create_server(("", port)))
            held.close()
            yield ports
            return


def listening(pid: int) -> set[int]:
    """Return the ports on which a process listens."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def looking(driver: int) -> Callable[[Any], dict[str, list[int]]]:
    """Return a program that says who listens where, before and after the ranks are joined in a ring."""

    def look(ctx: Any) -> dict[str, list[int]]:
        import numpy as np

        before = listening(os.getpid())
        spec = [int(address.rpartition(":")[2]) for nodes in ctx.cluster_spec.values() for address in nodes]
        seen = {"driver": sorted(listening(driver)), "node": sorted(before), "tensorflow": spec}
        ring = ctx._services.parallel.transport()
        assert ring.sum_arrays([np.ones(1)])[0][0] == ctx.workers
        return seen | {"joined": sorted(listening(os.getpid()))}

    return look


@pytest.mark.fault
def test_every_port_that_others_dial_is_in_the_range(
    spark_cluster: "SparkSession", free_ports: range
) -> None:
    text = f"{free_ports[0]}-{free_ports[-1]}"
    before = listening(os.getpid())
    program = looking(os.getpid())
    by_argument = ef.run(program, workers=2, spark=spark_cluster, verbose=False, port_range=text)
    spark_cluster.conf.set(SETTING, text)
    try:
        by_setting = ef.run(program, workers=2, spark=spark_cluster, verbose=False)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(
                ClusterError, match=f"port_range='{port}-{port}'"
            ) as caught:  # the argument wins
                ef.run(program, workers=2, spark=spark_cluster, verbose=False, port_range=f"{port}-{port}")
        assert "the driver's connections" in caught.value.problem
        # One port is enough for the driver, and none is left for the nodes.
        first = free_ports[0]
        with pytest.raises(ClusterError, match="could not run: A port between") as caught:
            ef.run(program, workers=2, spark=spark_cluster, verbose=False, port_range=f"{first}-{first}")
        assert "wider port_range" in caught.value.fix
    finally:
        spark_cluster.conf.unset(SETTING)
    for result in (by_argument, by_setting):
        for report in result.reports:
            seen = report.value
            (hub,) = set(seen["driver"]) - before
            (ring,) = seen["node"]
            assert seen["joined"] == []
            assert {hub, ring, *seen["tensorflow"]} <= set(free_ports)
            assert len({hub, ring, *seen["tensorflow"]}) == 4


@pytest.mark.full
def test_live_nodes_listen_in_the_range(spark_cluster: "SparkSession", free_ports: range) -> None:
    def look(ctx: Any) -> list[int]:
        seen = sorted(listening(os.getpid()))
        return seen if sum(each.rows() for each in ctx.rounds()) else []

    text = f"{free_ports[0]}-{free_ports[-1]}"
    with ef.cluster(look, workers=2, spark=spark_cluster, verbose=False, port_range=text) as cluster:
        assert cluster.train(spark_cluster.range(100)).rows == 100
    seen = [port for report in cluster.stop().reports for port in report.value]
    assert len(seen) == 4  # of each node that for rows, and that of the ring, which nobody has joined
    assert set(seen) <= set(free_ports)
