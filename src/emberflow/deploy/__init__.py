"""One description of a job, rendered for every cluster manager.

`Job` describes it, `load` reads it from YAML, and `render` makes what Kubernetes, Compose, Spark and others take.
"""

from emberflow.deploy.job import Job, Role, Secret, Volume
from emberflow.deploy.loading import load
from emberflow.deploy.rendering import TARGETS, render

__all__ = ["TARGETS", "Job", "Role", "Secret", "Volume", "load", "render"]
