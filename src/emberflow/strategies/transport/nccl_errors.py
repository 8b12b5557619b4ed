"""NCCL's errors, which TensorFlow reports as a few words at the end of a long traceback, as our own errors."""

import re

from emberflow.errors import ClusterError, EmberflowError, PeerError

# TensorFlow's text around NCCL's: "NCCL: invalid usage (...). Set NCCL_DEBUG=WARN for detail." where a
# communicator is made, "Error invoking NCCL: ..." where it is used; on other ranks, and for later operations, both
# come behind "Collective ops is aborted by: ".
_NCCL_TEXT = re.compile(r"(?:Error invoking )?NCCL: [^\n]+|nccl[A-Z]\w+[^\n]*|Duplicate GPU detected[^\n]*")
_SHARED_DEVICE = re.compile(r"invalid usage|ncclInvalidUsage|Duplicate GPU detected")
_LOST_PEER = re.compile(r"remote process exited|ncclRemoteError")


def nccl_error(message: str) -> EmberflowError | None:
    """Return our error for what a message of TensorFlow says about NCCL; None if it does not mention NCCL.

    >>> nccl_error("NCCL: invalid usage. Set NCCL_DEBUG=WARN for detail.").fix.splitlines()[0]
    'Give each worker a GPU of its own (gpus=1 in ef.run), or pass transport="ring".'
    >>> nccl_error("Matrix size-incompatible") is None
    True
    """
    found = _NCCL_TEXT.search(message)
    if found is None:
        return None
    text = found[0].strip()
    if _SHARED_DEVICE.search(message):
        return ClusterError(
            "NCCL refused to connect the workers: two of them have the same GPU, which it does not allow. "
            f"Received: {text}",
            fix='Give each worker a GPU of its own (gpus=1 in ef.run), or pass transport="ring".',
        )
    if _LOST_PEER.search(message):
        return PeerError(
            f"A rank exited while NCCL exchanged with it. Received: {text}",
            fix="Look at the logs of the other ranks; the first to fail is the cause.",
        )
    return ClusterError(
        f"NCCL could not exchange between the workers' GPUs. Received: {text}",
        fix='Set spark.executorEnv.NCCL_DEBUG=WARN and see the nodes\' output, or pass transport="ring".',
    )
