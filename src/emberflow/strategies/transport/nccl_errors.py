"""What NCCL's errors mean: TensorFlow passes them on as a few words at the end of many frames."""

import re

from emberflow.errors import ClusterError, EmberflowError, PeerError

# TensorFlow's own words around NCCL's: "NCCL: invalid usage (...). Set NCCL_DEBUG=WARN for detail." where a
# communicator is made, "Error invoking NCCL: ..." where it is used; on other ranks, and for later operations, both
# come behind "Collective ops is aborted by: ".
_SAID = re.compile(r"(?:Error invoking )?NCCL: [^\n]+|nccl[A-Z]\w+[^\n]*|Duplicate GPU detected[^\n]*")
_ONE_DEVICE = re.compile(r"invalid usage|ncclInvalidUsage|Duplicate GPU detected")
_PEER = re.compile(r"remote process exited|ncclRemoteError")


def nccl_error(message: str) -> EmberflowError | None:
    """Return what an error text of TensorFlow says about NCCL as one of our errors; None if it says nothing.

    >>> nccl_error("NCCL: invalid usage. Set NCCL_DEBUG=WARN for detail.").fix.splitlines()[0]
    'Give each worker a GPU of its own (gpus=1 in ef.run), or pass transport="ring".'
    >>> nccl_error("Matrix size-incompatible") is None
    True
    """
    found = _SAID.search(message)
    if found is None:
        return None
    said = found[0].strip()
    if _ONE_DEVICE.search(message):
        return ClusterError(
            "NCCL refused to connect the workers: two of them have the same GPU, which it does not allow. "
            f"Received: {said}",
            fix='Give each worker a GPU of its own (gpus=1 in ef.run), or pass transport="ring".',
        )
    if _PEER.search(message):
        return PeerError(
            f"A rank ended while NCCL exchanged with it. Received: {said}",
            fix="Look at the logs of the other ranks; the first to fail is the cause.",
        )
    return ClusterError(
        f"NCCL could not exchange between the workers' GPUs. Received: {said}",
        fix='Set spark.executorEnv.NCCL_DEBUG=WARN and see the nodes\' output, or pass transport="ring".',
    )
