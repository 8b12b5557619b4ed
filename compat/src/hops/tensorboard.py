"""Where a trial writes what TensorBoard shows."""

import os

import emberflow as ef

LOGDIR = "TENSORBOARD_LOGDIR"


def logdir() -> str:
    """Return the folder of this trial, for event files, checkpoints and models.

    It is local. What is in it is kept in the project's folder, also while the trial runs: show that to TensorBoard.
    """
    if folder := os.environ.get(LOGDIR):
        return folder
    raise ef.ConfigError(
        f"A log folder belongs to a trial. Received: {LOGDIR} is not set in this process.",
        fix=f"Call it in the function that you pass to tflauncher.launch, or set {LOGDIR} to a folder.",
    )
