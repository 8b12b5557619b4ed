"""What YARN says of this application, for errors: its state, a lost executor's last lines, where all logs are."""

from typing import TYPE_CHECKING, Any

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.yarn_logs import log_of_lost_executor
from emberflow._plan import deadlines
from emberflow.errors import ClusterError, EmberflowError, NodeLostError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MILLISECONDS = 1000


def add_application(error: EmberflowError, spark: "SparkSession", facts: ClusterFacts) -> None:
    """Add the application's state and where its logs are to an error of the cluster, on YARN.

    An executor that has ended takes its nodes along, which say nothing any more: its own last lines are added too.
    """
    if facts.master != "yarn" or not isinstance(error, NodeLostError | ClusterError):
        return
    if isinstance(error, NodeLostError) and not error.log_tail.strip():
        error.log_tail = log_of_lost_executor(spark, error.problem)
    error.problem = f"{error.problem.rstrip()}\nYARN: {_state(spark, facts.application)}"
    error.fix = f"{error.fix} Read more: yarn logs -applicationId {facts.application} -log_files stderr"


def _state(spark: "SparkSession", application: str) -> str:
    """Ask the ResourceManager, as the session's own settings and tickets allow."""
    try:
        report = _report(spark, application)
        state, final = str(report.getYarnApplicationState()), str(report.getFinalApplicationStatus())
        told = " ".join(str(report.getDiagnostics() or "").split())
    except Exception as error:  # noqa: BLE001 - whatever Py4J raises; the error that is told is another one
        return f"the state of {application} is not known ({type(error).__name__})."
    ended = f", {final}" if final != "UNDEFINED" else ""
    return f"{application} is {state}{ended}" + (f": {told}" if told else ".")


def _report(spark: "SparkSession", application: str) -> Any:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way to Hadoop's classes
    yarn = jvm.org.apache.hadoop.yarn
    conf = yarn.conf.YarnConfiguration()
    # By default a ResourceManager that is away is tried for a quarter of an hour.
    limit = str(int(deadlines.YARN_ANSWER_TIMEOUT * _MILLISECONDS))
    conf.set("yarn.resourcemanager.connect.max-wait.ms", limit)
    conf.set("yarn.resourcemanager.connect.retry-interval.ms", limit)
    client = yarn.client.api.YarnClient.createYarnClient()
    client.init(conf)
    client.start()
    try:
        return client.getApplicationReport(yarn.api.records.ApplicationId.fromString(application))
    finally:
        client.stop()
