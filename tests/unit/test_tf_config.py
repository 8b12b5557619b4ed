"""TF_CONFIG: what TensorFlow reads to know its cluster."""

from emberflow._plan.roles import assign_roles
from emberflow._plan.tf_config import cluster_spec_of, tf_config_of

NODES = assign_roles(2, ps=1, evaluator=True)
ADDRESSES = ["a:1", "b:2", "c:3", "d:4"]


def test_the_cluster_has_each_role_in_index_order_but_no_evaluator() -> None:
    assert cluster_spec_of(NODES, ADDRESSES) == {"chief": ["a:1"], "worker": ["b:2"], "ps": ["c:3"]}


def test_each_node_is_told_which_entry_it_is() -> None:
    tasks = [tf_config_of(node, NODES, ADDRESSES)["task"] for node in NODES]
    assert tasks == [
        {"type": "chief", "index": 0},
        {"type": "worker", "index": 0},
        {"type": "ps", "index": 0},
        {"type": "evaluator", "index": 0},
    ]


def test_all_nodes_see_the_same_cluster() -> None:
    clusters = [tf_config_of(node, NODES, ADDRESSES)["cluster"] for node in NODES]
    assert all(cluster == clusters[0] for cluster in clusters)
