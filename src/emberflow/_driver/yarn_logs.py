"""The end of what a lost executor printed, as `yarn logs` shows it: its NodeManager still has it."""

import re
import urllib.request
from typing import TYPE_CHECKING, Any

from emberflow._plan import deadlines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAST_BYTES = 4000
_LAST_LINES = 15
# What Spark knows of a log: a web page of the NodeManager. The same server has what `yarn logs` asks for while an
# application runs.
_PAGE = re.compile(r"(https?://[^/]+)/node/containerlogs/(container_\w+)/")
_CONTENTS = re.compile(r"LogContents:\n(.*?)\n?End of LogType:", re.DOTALL)


def log_of_lost_executor(spark: "SparkSession", problem: str) -> str:
    """Return the last lines of the executor whose end is told in `problem`; "" where they cannot be read."""
    try:
        page = _page_of_lost_executor(spark, problem)
        return _read_end(*page.groups()) if page else ""
    except Exception:  # noqa: BLE001 - whatever Py4J or the server raises; the error that is told is another one
        return ""


def _page_of_lost_executor(spark: "SparkSession", problem: str) -> re.Match[str] | None:
    """Ask Spark's own records for the executor that was removed for the reason that stands in `problem`."""
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no public function
    executors = context.statusStore().executorList(False)
    for place in range(executors.size()):
        executor = executors.apply(place)
        reason, page = executor.removeReason(), executor.executorLogs().get("stderr")
        if reason.isDefined() and page.isDefined() and _is_told(str(reason.get()), problem):
            return _PAGE.match(str(page.get()))
    return None


def _is_told(reason: str, problem: str) -> bool:
    first_line = reason.partition("\n")[0].strip()
    return bool(first_line) and first_line in problem


def _read_end(server: str, container: str) -> str:
    """Read the last lines from the NodeManager, which tells where they begin and end."""
    url = f"{server}/ws/v1/node/containers/{container}/logs/stderr?size=-{_LAST_BYTES}"
    with urllib.request.urlopen(url, timeout=deadlines.YARN_ANSWER_TIMEOUT) as answer:
        found = _CONTENTS.search(answer.read(2 * _LAST_BYTES).decode(errors="replace"))
    return "\n".join(found[1].splitlines()[-_LAST_LINES:]) if found else ""
