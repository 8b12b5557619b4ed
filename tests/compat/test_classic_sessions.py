"""Old programs on Spark Connect: the error says what they need, and what to use instead."""

from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import emberflow as ef
from emberflow_compat.classic_sessions import check_context
from hops import tflauncher, util
from tensorflowonspark import TFCluster, TFParallel


class ConnectSession:
    """A session as Spark Connect's own class looks: settings, and no context."""

    __module__ = "pyspark.sql.connect.session"

    @property
    def conf(self) -> dict[str, str]:
        return {}


def test_launch_and_num_executors_need_a_classic_session() -> None:
    session: Any = ConnectSession()
    with pytest.raises(ef.ClusterError, match=r"(?s)tflauncher\.launch needs .* use ef\.run_parallel"):
        tflauncher.launch(session, print)
    with pytest.raises(ef.ClusterError, match=r"(?s)util\.num_executors needs .* use ef\.run"):
        util.num_executors(session)
    assert util.num_param_servers(session) == 0  # known without a context


def test_what_is_not_a_context_is_named() -> None:
    with pytest.raises(ef.ClusterError, match=r"Received: an object of pyspark\.sql\.connect\.session"):
        check_context(ConnectSession(), "tensorspark's SparkSession", native="ef.run")


@pytest.mark.parametrize("run", [TFCluster.run, TFParallel.run])
def test_clusters_and_parallel_runs_need_a_context_that_is_up(run: Any) -> None:
    with pytest.raises(
        ef.ClusterError, match=r"run needs the SparkContext .* an object of pyspark\.sql\.connect"
    ):
        run(ConnectSession(), print, {}, 2, 0)
    session: Any = object.__new__(SparkSession)
    with pytest.raises(ef.ClusterError, match=r"(?s)a SparkSession.*Pass spark\.sparkContext"):
        run(session, print, {}, 2, 0)
    stopped: Any = object.__new__(SparkContext)
    stopped._jsc = None  # what `stop` leaves
    with pytest.raises(ef.ClusterError, match=r"(?s)run needs a SparkContext that is up.*before spark\.stop"):
        run(stopped, print, {}, 2, 0)
