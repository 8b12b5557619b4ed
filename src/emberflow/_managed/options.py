"""The command line of `python -m emberflow.node`: its own options, your program, the program's arguments."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from emberflow._choices import STRATEGIES, TransportChoice
from emberflow._plan import deadlines
from emberflow.config import EVALUATOR_TIMEOUT, EXCHANGE_TIMEOUT, JOIN_TIMEOUT

FLAGS = ("--encrypt", "--allow-unencrypted", "--no-cache", "--help", "-h")  # options without a value
USAGE = "python -m emberflow.node [OPTIONS] FILE.py:FUNCTION [ARGUMENTS OF YOUR OWN]"
DESCRIPTION = (
    "Run one task of a distributed TensorFlow program that a cluster manager has started. TF_CONFIG, or "
    "EMBERFLOW_ROLE, EMBERFLOW_INDEX and EMBERFLOW_CLUSTER, say which; EMBERFLOW_KEY_FILE names the file of the "
    "run's key. Tasks of the roles dispatcher, data-worker and tensorboard have no program. The options of the chief "
    "hold for all."
)


@dataclass(frozen=True, kw_only=True)
class NodeCommand:
    """A command line, taken apart.

    Attributes:
        options: The node's own options.
        program: FILE.py:FUNCTION; None where there is none.
        arguments: What the program finds in ``sys.argv[1:]``.
    """

    options: argparse.Namespace
    program: str | None
    arguments: tuple[str, ...]


def read_command(words: Sequence[str]) -> NodeCommand:
    """Return the command line taken apart; exit with code 2 if an option is unknown or wrong."""
    place = program_place(words)
    options = _parser().parse_args(words[:place])
    program = words[place] if place < len(words) else None
    return NodeCommand(options=options, program=program, arguments=tuple(words[place + 1 :]))


def program_place(words: Sequence[str]) -> int:
    """Return the place of the program: the first word that is neither an option nor an option's value.

    >>> program_place(["--encrypt", "--data", "rows.py:train", "train.py:train", "--epochs", "3"])
    3
    """
    place = 0
    while place < len(words) and words[place].startswith("-"):
        place += 1 if "=" in words[place] or words[place] in FLAGS else 2
    return min(place, len(words))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m emberflow.node", usage=USAGE, description=DESCRIPTION, allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "--data",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="files that the nodes read: Parquet, or TFRecord where the path has .tfrecord in it; the name is train "
        "if left out. Or FILE.py:NAME for what `data` of ef.run takes: a source, a dict of them, or a function that "
        "returns them. May be repeated.",
    )
    add("--strategy", choices=sorted(STRATEGIES), default="data_parallel", help="as of ef.run")
    add("--transport", choices=get_args(TransportChoice), default="auto", help="as of ef.run")
    add("--checkpoint-dir", metavar="FOLDER", help="storage that all tasks share, for ctx.save_checkpoint")
    add(
        "--record",
        metavar="FOLDER",
        help="any storage: the chief writes there what happens, for `emberflow runs`",
    )
    add("--gpus", type=int, metavar="N", help="GPUs of each worker; as many as the chief sees if left out")
    add("--no-cache", action="store_true", help="read the rows once, without a copy on local disk")
    add("--spool-dir", metavar="FOLDER", help="local folder for the rows")
    add("--log-dir", metavar="FOLDER", help="event files that the role tensorboard shows")
    add("--encrypt", action="store_true", help="encrypt everything that tasks send each other, gradients too")
    add("--allow-unencrypted", action="store_true", help="let TensorFlow's servers run all the same")
    for name, usual in (
        ("start", deadlines.MANAGED_START_TIMEOUT),
        ("join", JOIN_TIMEOUT),
        ("exchange", EXCHANGE_TIMEOUT),
        ("evaluator", EVALUATOR_TIMEOUT),
    ):
        add(f"--{name}-timeout", type=float, default=usual, metavar="SECONDS", help=f"{usual:g} if left out")
    return parser
