"""Errors of a command as exit codes that scripts can rely on, with a message instead of a traceback."""

import re
from collections.abc import Callable

from rich.console import Console

from emberflow.errors import ConfigError, EmberflowError, ModelError, StorageError

WRONG_INPUT = 2  # as typer exits for a wrong option
FAILED = 1  # the usual exit code of a program that failed

_OURS = re.compile(r"emberflow\.errors\.\w+: (.*?)(?=\n\n|\n\s+at |\nJVM stacktrace|\Z)", re.DOTALL)


def exit_code_of(action: Callable[[Console], None]) -> int:
    """Run the action and return the exit code: 0, 2 for wrong input, 1 for work that failed.

    An error that is neither ours nor Spark's, such as one in the user's own file, keeps its traceback (exit code 1).
    """
    try:
        action(Console(highlight=False, soft_wrap=True))  # no line breaks within paths
    except (ConfigError, ModelError, StorageError) as error:
        return _print_error(str(error), WRONG_INPUT)
    except (EmberflowError, OSError) as error:
        return _print_error(str(error), FAILED)
    except Exception as error:
        found = _spark_error(error)
        if found is None:
            raise
        return _print_error(*found)
    return 0


def _print_error(text: str, code: int) -> int:
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)
    return code


def _spark_error(error: Exception) -> tuple[str, int] | None:
    """Return the message and the exit code for an error of Spark's; None for any other."""
    from pyspark.errors import AnalysisException, PySparkException

    if not isinstance(error, PySparkException):
        return None
    text = str(error)
    ours = _OURS.search(text)  # raised in a task: Spark's own text surrounds it
    if ours:
        return ours[1].strip(), FAILED
    if isinstance(error, AnalysisException):
        return text.partition("\n")[0], WRONG_INPUT
    return text.partition("\n\tat ")[0].partition("JVM stacktrace:")[0].strip(), FAILED
