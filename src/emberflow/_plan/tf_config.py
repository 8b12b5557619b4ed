"""The TF_CONFIG of one node."""

from collections.abc import Sequence
from typing import TypedDict

from emberflow._plan.roles import TF_ROLES, Node

ClusterSpec = dict[str, list[str]]


class Task(TypedDict):
    """Which entry of the cluster this process is."""

    type: str
    index: int


class TFConfig(TypedDict):
    """What TensorFlow reads from the environment variable TF_CONFIG."""

    cluster: ClusterSpec
    task: Task


def cluster_spec_of(nodes: Sequence[Node], addresses: Sequence[str]) -> ClusterSpec:
    """Return job name -> addresses in index order, without the evaluator and tf.data service.

    These are not part of the training cluster: TensorFlow's collectives would wait for them.

    >>> from emberflow._plan.roles import assign_roles
    >>> cluster_spec_of(assign_roles(2, evaluator=True), ["a:1", "b:2", "c:3"])
    {'chief': ['a:1'], 'worker': ['b:2']}
    """
    spec: ClusterSpec = {}
    for node, address in zip(nodes, addresses, strict=True):
        if node.role in TF_ROLES:
            spec.setdefault(node.role, []).append(address)
    return spec


def tf_config_of(me: Node, nodes: Sequence[Node], addresses: Sequence[str]) -> TFConfig:
    """Return the TF_CONFIG of one node."""
    return {
        "cluster": cluster_spec_of(nodes, addresses),
        "task": {"type": me.role, "index": me.index},
    }
