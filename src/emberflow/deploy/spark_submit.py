"""Command lines of spark-submit, for Spark's own cluster manager, for YARN and for Kubernetes."""

import shlex
from collections.abc import Sequence

from emberflow.deploy.documents import Document
from emberflow.deploy.job import Job
from emberflow.deploy.spark_settings import (
    application_of,
    executor_environment,
    executor_settings,
    image_url,
    kubernetes_settings,
    node_count,
)

MASTERS = {
    "spark://": ("Spark's own cluster manager", "spark://master:7077"),
    "yarn": ("YARN", "yarn"),
    "k8s://": ("Kubernetes", "k8s://https://kubernetes.default.svc:443"),
}


def render(job: Job) -> list[Document]:
    """Return a command for each kind of master; for one only, where `spark_conf` has a spark.master."""
    chosen = job.spark_conf.get("spark.master")
    commands = []
    for prefix, (title, master) in MASTERS.items():
        if chosen is None or chosen.startswith(prefix):
            commands.append({"title": title, "words": command_of(job, chosen or master)})
    return commands


def command_of(job: Job, master: str) -> list[list[str]]:
    """Return the words of a command, those of one option together."""
    application = application_of(job)
    kubernetes = master.startswith("k8s://")
    settings = executor_settings(job, kubernetes=kubernetes)
    env = executor_environment(job)
    settings |= {f"spark.executorEnv.{name}": value for name, value in env.items()}
    mode = "client" if master.startswith("spark://") else "cluster"  # there a driver in Python runs here only
    file = application.file
    if kubernetes:
        settings |= kubernetes_settings(job)
        file = image_url(job, file)
    elif master == "yarn":
        settings |= {f"spark.yarn.appMasterEnv.{name}": value for name, value in env.items()}
        settings["spark.yarn.maxAppAttempts"] = str(job.restarts + 1)
    else:
        settings["spark.cores.max"] = str(node_count(job) * int(settings["spark.executor.cores"]))
    settings |= {name: value for name, value in job.spark_conf.items() if name != "spark.master"}
    options = [["--master", master], ["--deploy-mode", mode], ["--name", job.name]]
    options += [["--conf", f"{name}={value}"] for name, value in settings.items()]
    return [["spark-submit"], *options, [file, *application.args]]


def shell_text(documents: Sequence[Document]) -> str:
    r"""Return the commands as lines of a shell, one option on each.

    >>> print(shell_text([{"title": "YARN", "words": [["spark-submit"], ["--name", "a b"]]}]), end="")
    # YARN
    spark-submit \
      --name 'a b'
    """
    commands = []
    for each in documents:
        lines = " \\\n  ".join(shlex.join(words) for words in each["words"])
        commands.append(f"# {each['title']}\n{lines}\n")
    return "\n".join(commands)
