"""What the collective transport asks of TensorFlow, as far as a machine without GPUs can show it."""

from typing import Any

import pytest

import tensorflow as tf
from emberflow.strategies.transport.collectives import Collectives


def collective_ops(transport: Collectives) -> list[Any]:
    """Return the collective operations of a step that sums and gathers numbers of all kinds."""

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        numbers = [
            tf.constant([1], dtype) for dtype in (tf.int32, tf.int64, tf.uint8, tf.float16, tf.float32)
        ]
        return transport.sum(numbers), [transport.gather(each) for each in numbers]

    graph = step.get_concrete_function().graph
    return [op for op in graph.get_operations() if op.type.startswith("Collective")]


def test_no_number_is_reduced_or_gathered_as_int32_which_tensorflow_refuses_on_gpus() -> None:
    ops = collective_ops(Collectives(0, 2, None, 5.0))
    assert {op.type for op in ops} == {"CollectiveReduceV2", "CollectiveGatherV2"}
    assert {op.inputs[0].dtype for op in ops} == {tf.int64, tf.float32}


@pytest.mark.parametrize(("gpus", "hint"), [(["GPU:0"], b"nccl"), ([], b"auto")])
def test_nccl_is_asked_for_where_there_are_gpus(
    monkeypatch: pytest.MonkeyPatch, gpus: list[str], hint: bytes
) -> None:
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda _: gpus)
    ops = collective_ops(Collectives(0, 2, None, 5.0))
    assert {op.get_attr("communication_hint") for op in ops} == {hint}
