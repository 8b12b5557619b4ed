"""How many rows go through the model in one call, where the user has not said it: as many as fill some megabytes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from emberflow._feed.element_types import BYTES
from emberflow._score.input_plan import InputPlan

USUAL_BYTES = 4 << 20  # of inputs: what follows from them in the model still fits a processor's caches
MOST_BYTES = 64 << 20
LEAST_ROWS = 32  # below, the start of each operation weighs more than its work
MOST_ROWS = 4096


def rows_of_a_call(plans: Sequence[InputPlan], batch: Any) -> int:
    """Return the rows of one call of the model.

    Not by the clock: a task that is repeated must call the model with the same rows, as rounding may depend on their
    number.

    Args:
        plans: The model's inputs.
        batch: The first rows of a task, only the columns of these inputs. They tell the size of a row where the
            model does not.
    """
    sizes = [_row_bytes(plan) for plan in plans]
    known = sum(size for size in sizes if size is not None)
    row = max(known if None not in sizes else max(known, batch.nbytes // batch.num_rows), 1)
    usual = min(max(USUAL_BYTES // row, LEAST_ROWS), MOST_ROWS)
    return max(min(usual, MOST_BYTES // row), 1)


def _row_bytes(plan: InputPlan) -> int | None:
    """Return the bytes of one row of an input, None where only the rows tell."""
    if plan.dtype == BYTES or plan.ragged or None in plan.shape:
        return None
    width = 2 if plan.dtype == "bfloat16" else np.dtype(plan.dtype).itemsize
    return width * math.prod(size for size in plan.shape if size is not None)
