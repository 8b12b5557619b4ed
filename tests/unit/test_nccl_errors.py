"""What NCCL says through TensorFlow, as errors with a remedy."""

import pytest

from emberflow.errors import ClusterError, PeerError
from emberflow.strategies.transport.nccl_errors import nccl_error

ABORTED = "Collective ops is aborted by: "
AGAIN = (
    "\nThe error could be from a previous operation. Restart your program to reset. [Op:CollectiveReduceV2]"
)


@pytest.mark.fault
@pytest.mark.parametrize(
    "text",
    [
        "NCCL: invalid usage (run with NCCL_DEBUG=WARN for details). Set NCCL_DEBUG=WARN for detail.",
        ABORTED + "NCCL: invalid usage. Set NCCL_DEBUG=WARN for detail." + AGAIN,
        ABORTED + "Error invoking NCCL: invalid usage (run with NCCL_DEBUG=WARN for details)" + AGAIN,
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU ...",
    ],
)
def test_two_ranks_on_one_gpu_are_named_with_the_remedy(text: str) -> None:
    error = nccl_error(text)
    assert isinstance(error, ClusterError)
    assert "two of them have the same GPU" in error.problem
    assert "invalid usage" in error.problem or "InvalidUsage" in error.problem
    assert "gpus=1" in error.fix
    assert 'transport="ring"' in error.fix


@pytest.mark.parametrize("text", ["unhandled cuda error", "unhandled system error", "internal error"])
def test_other_faults_of_nccl_say_where_its_reason_is(text: str) -> None:
    error = nccl_error(f"{ABORTED}Error invoking NCCL: {text} (run with NCCL_DEBUG=INFO for details){AGAIN}")
    assert isinstance(error, ClusterError)
    assert text in error.problem
    assert "the same GPU" not in error.problem
    assert "NCCL_DEBUG=WARN" in error.fix


def test_a_rank_that_ended_is_a_peers_fault() -> None:
    said = "Error invoking NCCL: remote process exited or there was a network error"
    assert isinstance(nccl_error(ABORTED + said + AGAIN), PeerError)


@pytest.mark.parametrize(
    "text",
    ["", "Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]", ABORTED + "worker 1 was cancelled" + AGAIN],
)
def test_what_is_not_nccls_is_left_alone(text: str) -> None:
    assert nccl_error(text) is None
