"""Old programs on Spark Connect: the error says what they need, and what to use instead."""

from typing import Any

import pytest

import emberflow as ef
from emberflow_compat.classic_sessions import check_context
from hops import tflauncher, util


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
