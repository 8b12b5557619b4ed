"""TensorFlow's own servers listen where they were told to."""

import os
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.full
@pytest.mark.usefixtures("nothing_left")
def test_tensorflows_servers_are_in_the_port_range(spark_cluster: "SparkSession") -> None:
    def serve(ctx: Any) -> list[int]:
        import tensorflow as tf

        with ctx.strategy().scope():
            tf.Variable(1.0)
        connections = psutil.Process(os.getpid()).net_connections("tcp")
        return [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN]

    result = ef.run(serve, workers=2, spark=spark_cluster, verbose=False, port_range="20000-29999")
    for report in result.reports:
        assert len(report.value) == 2  # the ring's and TensorFlow's
        assert all(20000 <= port <= 29999 for port in report.value)
