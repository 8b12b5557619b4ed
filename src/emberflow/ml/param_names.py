"""Errors of `ef.run` with the names that a user of an estimator types: `numPs` for `ps`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from emberflow.errors import EmberflowError, NodeError
from emberflow.ml.run_params import RUN_OPTIONS

PARAMS = {option: name for name, option in RUN_OPTIONS.items()} | {"evaluator_timeout": "evaluatorTimeout"}
# Options of one word are words of sentences too: those are replaced where they stand as names only.
_NAMES = re.compile(
    "|".join(
        rf"(?<![\w./]){option}(?![\w/])"
        if "_" in option
        else rf"(?<![\w./]){option}(?==)|(?<=`){option}(?=`)"
        for option in PARAMS
    )
)


@contextmanager
def params_named() -> Iterator[None]:
    """Let an error of the block name Params instead of options of `ef.run`."""
    try:
        yield
    except EmberflowError as error:
        # What a node raised is quoted as it is.
        problem = error.problem if isinstance(error, NodeError) else named(error.problem)
        error.reword(problem, named(error.fix))
        raise


def named(text: str) -> str:
    """Return the text with the names of Params instead of options.

    >>> named("2 workers. Received: workers=2, ps=0, checkpoint_dir=None. Raise `ps` or executor_timeout.")
    '2 workers. Received: numWorkers=2, numPs=0, checkpointDir=None. Raise `numPs` or executorTimeout.'
    """
    return _NAMES.sub(lambda found: PARAMS[found[0]], text)
