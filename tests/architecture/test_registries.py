"""Each name that a user may choose has exactly one implementation, under the same name."""

from pathlib import Path
from typing import get_args

from emberflow import _choices
from emberflow._choices import STRATEGIES, TRANSPORTS
from emberflow._node.node_spec import NodeSpec
from emberflow._node.strategy_services import StrategyServices
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import assign_roles
from emberflow.strategies.transport.connectors import CONNECTORS


def node_spec(tmp_path: Path) -> NodeSpec:
    nodes = assign_roles(workers=1)
    plan = RunPlan(
        run_id="x",
        nodes=nodes,
        rendezvous="driver",
        driver_address=None,
        start_timeout=1,
        forward_logs=False,
        python=(3, 11),
    )
    return NodeSpec(
        me=nodes[0], plan=plan, host="127.0.0.1", folder=str(tmp_path), devices=(), key=b"", fn=b""
    )


def test_every_strategy_has_a_type_facts_and_a_service(tmp_path: Path) -> None:
    names = set(get_args(_choices.Strategy))
    assert set(STRATEGIES) == names
    assert set(StrategyServices(node_spec(tmp_path)).by_strategy) == names


def test_every_transport_has_a_connector() -> None:
    assert set(CONNECTORS) == set(TRANSPORTS)
    assert set(get_args(_choices.TransportChoice)) == {"auto", *TRANSPORTS}
