"""Where an attempt writes its checkpoints and what it starts from, chosen once for all nodes."""

from emberflow import storage
from emberflow._node.checkpoints import attempts_in, steps_of
from emberflow._plan.plan import CheckpointPlan

CLAIM = "_claim"


def plan_checkpoints(folder: str, run_id: str) -> CheckpointPlan:
    """Choose the attempt's own folder and what it starts from, and leave a claim there."""
    found = attempts_in(folder)
    number = found[-1][0] + 1 if found else 0
    own = storage.join(folder, f"attempt-{number:05d}-{run_id}")
    # The claim keeps the number from being given again, and shows nodes that they see the driver's storage.
    claim = storage.join(own, CLAIM)
    storage.write_bytes(claim, b"")
    complete = (steps[-1] for _, path in reversed(found) if (steps := steps_of(path)))
    return CheckpointPlan(
        folder=folder, number=number, own=own, resume_from=next(complete, None), probe=claim
    )


def drop_if_empty(plan: CheckpointPlan) -> None:
    """Delete the attempt's folder if nothing was saved. Only once all of its nodes have ended."""
    if not steps_of(plan.own):
        storage.delete(plan.own)
