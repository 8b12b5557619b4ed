"""Three descriptions and their renderings; `python -m tests.unit.deploy.renderings` writes the golden files."""

from pathlib import Path
from typing import Any

from emberflow.deploy import TARGETS, Job, load, render
from emberflow.deploy.rendering import objects_of

HERE = Path(__file__).parent
DESCRIPTIONS = ("synchronous", "parameter-servers", "gpu")
PAIRS = [(description, target) for description in DESCRIPTIONS for target in TARGETS]


def job(description: str, *changes: str) -> Job:
    """Return one of the three jobs, with changes as of `--set`."""
    return load(HERE / "descriptions" / f"{description}.yaml", changes)


def objects(description: str, target: str, *changes: str) -> list[dict[str, Any]]:
    """Return the objects of a rendering, with changes as of `--set`."""
    return objects_of(job(description, *changes), target)


def golden_file(description: str, target: str) -> Path:
    """Return the file that a rendering is compared with."""
    return HERE / "golden" / f"{description}-{target}.{TARGETS[target].form}"


if __name__ == "__main__":
    for description, target in PAIRS:
        golden_file(description, target).write_text(render(job(description), target))
