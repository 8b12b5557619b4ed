"""Placeholders in the command, the arguments and the variables of a job, such as {task_index}."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from emberflow._names import closest
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from emberflow.deploy.job import Job

PLACEHOLDERS = ("name", "job_name", "task_index", "chief_hosts", "worker_hosts", "ps_hosts")
_BRACES = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders of a text; doubled braces stand for braces.

    >>> fill("--job={job_name} {{job_name}} {x} {}", {"job_name": "ps"})
    '--job=ps {job_name} {x} {}'
    """

    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return "{" + found[1] + "}"
        return values.get(found[2], found[0])

    return _BRACES.sub(replaced, text)


def check_placeholders(job: "Job") -> None:
    """Refuse a misspelt placeholder: the program would receive it as it is."""
    texts = {f"command[{place}]": text for place, text in enumerate(job.command)}
    texts |= {f"args[{place}]": text for place, text in enumerate(job.args)}
    texts |= {f"env.{name}": text for name, text in job.env.items()}
    for path, text in texts.items():
        for _, name in _BRACES.findall(text):
            meant = closest(name, PLACEHOLDERS)
            if name and name not in PLACEHOLDERS and meant:
                raise ConfigError(
                    f"`{path}` has an unknown placeholder {{{name}}}. Received: {path}={text!r}.",
                    fix=f"Did you mean {{{meant}}}? Write {{{{{name}}}}} to keep it as it is.",
                )
