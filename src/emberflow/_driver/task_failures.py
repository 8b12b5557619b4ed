"""What Spark knows of a task that it has lost and starts again: it raises no error, so it must be asked."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_TASKS = 100_000  # of a stage; Spark keeps as many


def failure_of_task(spark: "SparkSession", tag: str, partition: int) -> str:
    """Return why a task of the last stage of the jobs with this tag failed; "" as long as Spark does not say.

    Args:
        spark: A classic session.
        tag: The tag of the jobs.
        partition: The task's number in its stage.
    """
    with suppress(
        Exception
    ):  # Spark's own records are no public interface: without them the cause is not named
        scala_context = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no public function
        store = scala_context.statusStore()
        jobs = scala_context.statusTracker().getJobIdsForTag(tag)
        stage = max(number for job in jobs for number in _items(store.job(job).stageIds()))
        for task in _items(store.taskList(stage, 0, MOST_TASKS)):
            if task.index() == partition and task.errorMessage().isDefined():
                return str(task.errorMessage().get()).partition("\n")[0]
    return ""


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]
