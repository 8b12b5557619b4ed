"""What each transport opens before your function, and what it says of it."""

import logging
import sys
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from emberflow._node.serving import Serving
from emberflow._plan.tf_config import TFConfig
from emberflow.errors import ConfigError, EncryptionError
from emberflow.strategies.transport.connectors import CONNECTORS, RankSpec

SPEC = RankSpec(
    rank=1, host="127.0.0.1", key=b"k" * 32, port_range=None, join_timeout=5.0, exchange_timeout=5.0
)
TF_CONFIG = cast(
    "TFConfig",
    {"cluster": {"chief": ["a:1000"], "worker": ["b:1001"]}, "task": {"type": "worker", "index": 0}},
)


def listening() -> set[int]:
    connections = psutil.Process().net_connections("tcp")
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def test_no_transport_opens_no_port_and_refuses_to_connect(caplog: pytest.LogCaptureFixture) -> None:
    before = listening()
    connector = CONNECTORS["none"](SPEC)
    connector.join([{}, {}], TF_CONFIG)
    assert connector.endpoint == {}
    assert listening() == before
    assert not caplog.records
    with pytest.raises(ConfigError, match='transport="none"'):
        connector.connect()


def test_collectives_say_which_port_they_open_before_they_open_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def start(tf_config: str, *, receive_timeout: float) -> Any:
        started.append(caplog.text)
        return SimpleNamespace(strategy="mirrored")

    name = "emberflow.strategies.transport.collectives"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(start_collectives=start))
    with caplog.at_level(logging.WARNING, logger="emberflow"):
        CONNECTORS["collectives"](SPEC).join([{}, {}], TF_CONFIG)
    (record,) = caplog.records
    assert "opens port 1001 on all interfaces" in record.getMessage()
    assert 'transport="none"' in record.getMessage()
    assert started == [caplog.text]


@pytest.mark.parametrize("call", [Serving.serve, Serving._coordinate])
def test_tensorflows_servers_are_refused_where_the_run_must_be_encrypted(call: Any) -> None:
    known = {"role": "worker", "workers": 2, "ps": 1, "_allows_tf_servers": False}
    node = type("Node", (Serving,), known)()
    with pytest.raises(EncryptionError, match="cannot encrypt") as caught:
        call(node)
    assert "allow_unencrypted=True" in caught.value.fix
