"""What a node runs: one trial, with a folder of its own that is kept whatever becomes of it."""

import json
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hops import hdfs, tensorboard

OUTCOME = "outcome.json"
LOG = "trial.log"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One call of the user's function.

    Attributes:
        folder: Where its files are kept.
        arguments: What it is called with, by name.
    """

    folder: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Trials:
    """The function and all of its calls, the same for all nodes."""

    function: Callable[..., Any]
    each: Sequence[Trial]
    project_path: str


def run_trial(trials: Trials, ctx: Any) -> str:
    """Call the function once, and note in its folder what became of it; return the traceback of an error.

    An error is no reason to end the other trials, so it is a value here.
    """
    trial = trials.each[ctx.index]
    folder = ctx.mirror(trial.folder)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        tensorboard.LOGDIR: str(folder),
        hdfs.LOG_FILE: str(folder / LOG),
        hdfs.PROJECT_PATH: trials.project_path,
    }
    error, value = "", None
    try:
        value = trials.function(**trial.arguments)
    except (Exception, SystemExit):  # noqa: BLE001 - of the user's function
        error = traceback.format_exc()
    told = {
        "arguments": trial.arguments,
        "state": "FAILED" if error else "FINISHED",
        "value": value,
        "error": error,
    }
    (folder / OUTCOME).write_text(json.dumps(told, default=repr, indent=2) + "\n")
    return error
