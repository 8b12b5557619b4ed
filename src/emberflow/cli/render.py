"""`emberflow render`: a job for a cluster manager, from its description."""

import importlib.resources
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from emberflow.cli.exit_codes import exit_code_of
from emberflow.errors import ConfigError


def render(
    manager: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="kubernetes, jobset, kubeflow-tfjob, kubeflow-trainjob, spark-operator, spark-submit, "
            "docker-compose, swarm, marathon or tf-data-service.",
        ),
    ] = None,
    job: Annotated[Path | None, typer.Argument(help="The description, a YAML file.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="A field of the description, such as roles.worker.replicas=8."),
    ] = None,
    patch: Annotated[
        list[Path] | None, typer.Option(help="A YAML file of changes to the rendered objects.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the file; created if missing. Without it: standard output."),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a description with comments.")] = False,
) -> None:
    """Render a job for a cluster manager: one description for all of them.

    For example:

      emberflow render --example > job.yaml

      emberflow render kubernetes job.yaml --set roles.worker.replicas=8

      emberflow render docker-compose job.yaml --out deploy
    """
    code = exit_code_of(
        lambda console: _render(console, manager, job, changes or [], patch or [], out, example)
    )
    raise typer.Exit(code)


def _render(
    console: Console,
    target: str | None,
    job: Path | None,
    changes: list[str],
    patches: list[Path],
    out: Path | None,
    example: bool,
) -> None:
    from emberflow.deploy.loading import load, parse_all, read_text
    from emberflow.deploy.rendering import TARGETS, file_name
    from emberflow.deploy.rendering import render as rendered

    if example:
        typer.echo(
            importlib.resources.files("emberflow.deploy").joinpath("example.yaml").read_text(), nl=False
        )
        return
    if target is None or job is None:
        raise ConfigError(
            f"A target and a description are needed. Received: target={target!r}, job={job!r}.",
            fix=f"Write `emberflow render TARGET job.yaml` with one of {', '.join(TARGETS)}; "
            "`emberflow render --example > job.yaml` writes a description.",
        )
    described = load(job, changes)
    fix = "Name a YAML file of changes to the rendered objects."
    texts = {str(file): read_text(file, "patch", fix) for file in patches}
    laid_over = [each for file, text in texts.items() for each in parse_all(text, file)]
    text = rendered(described, target, patches=laid_over)
    if out is None:
        typer.echo(text, nl=False)
        return
    out.mkdir(parents=True, exist_ok=True)
    file = out / file_name(described, target)
    file.write_text(text, encoding="utf-8")
    console.print(f"{file} written", markup=False)
