"""The project's folder, and a log in it."""

import getpass
import os
from datetime import datetime
from pathlib import Path

PROJECT_PATH = "HOPS_PROJECT_PATH"
LOG_FILE = "EXEC_LOGFILE"


def project_user() -> str:
    """Return the user of the project, such as ``project__name`` on Hops."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def project_name() -> str:
    """Return the name of the project: on Hops the first part of the user, elsewhere the user."""
    return project_user().partition("__")[0]


def project_path() -> str:
    """Return the folder of the project, with a slash at the end: ``hdfs:///Projects/NAME/``.

    Where there is no Hops, the environment variable HOPS_PROJECT_PATH names another folder that all hosts see.
    """
    path = os.environ.get(PROJECT_PATH) or f"hdfs:///Projects/{project_name()}"
    return path.rstrip("/") + "/"


def log(string: str) -> None:
    """Append a line to the log of this trial, which is kept in its folder; elsewhere, do nothing."""
    if file := os.environ.get(LOG_FILE):
        with Path(file).open("a") as lines:
            lines.write(f"{datetime.now().isoformat()}: {string}\n")
