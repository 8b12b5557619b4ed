"""Virtual environments with the wheel of this repository, as a new user gets them by `pip install emberflow`."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
INSTALL_TIMEOUT = 900.0


def built_wheel(folder: Path, project: Path = ROOT) -> Path:
    """Build the wheel of a project into an empty folder, as the package index would get it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def bare_environment(folder: Path) -> tuple[Path, Path]:
    """Make an environment without packages; return its Python and its folder for packages."""
    venv.create(folder, symlinks=True, with_pip=False)
    return folder / "bin" / "python", next(folder.glob("lib/python3*/site-packages"))


def install_by_links(wheel: Path, packages: Path) -> None:
    """Unpack the wheel, and link what its own metadata require, and what that requires, from this environment.

    Nothing else of this environment can be imported there: a dependency that is not declared is missing.
    """
    unpack(wheel, packages)
    (metadata,) = packages.glob("emberflow-*.dist-info")
    for needed in required_by(Distribution.at(metadata)).values():
        link(needed, packages)


def unpack(wheel: Path, packages: Path) -> None:
    """Install what is in a wheel, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)


def required_by(root: Distribution) -> dict[str, Distribution]:
    """Return the distributions that one needs, by name, those of its extras left out."""
    found: dict[str, Distribution] = {}
    waiting: list[tuple[Distribution, frozenset[str]]] = [(root, frozenset())]
    while waiting:
        dist, extras = waiting.pop()
        for text in dist.requires or []:
            needs = Requirement(text)
            if needs.marker and not any(needs.marker.evaluate({"extra": extra}) for extra in extras | {""}):
                continue
            name = re.sub(r"[-_.]+", "-", needs.name).lower()
            if name not in found or needs.extras:
                found[name] = distribution(needs.name)
                waiting.append((found[name], frozenset(needs.extras)))
    return found


def link(dist: Distribution, packages: Path) -> None:
    """Link what one distribution installed; folders that several share, such as google/, by what is in them."""
    for file in dist.files or []:
        if file.parts[0] in {"..", "__pycache__"} or "__pycache__" in file.parts:
            continue
        parts = file.parts[:1]
        while len(parts) < len(file.parts) and is_shared(Path(str(dist.locate_file("/".join(parts))))):
            parts = file.parts[: len(parts) + 1]
        target = packages.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(Path(str(dist.locate_file("/".join(parts)))).resolve())


def is_shared(folder: Path) -> bool:
    """Say whether this is a namespace, to which several distributions add."""
    return folder.is_dir() and folder.suffix != ".dist-info" and not (folder / "__init__.py").exists()


def install_from_index(wheel: Path, python: Path) -> None:
    """Install the wheel and whatever the package index has for it; skip where there is no way to the index."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".venv/share/emberflow/uv/bin"))
    if uv:
        command = [uv, "pip", "install", "--python", str(python), str(wheel)]
    else:
        subprocess.run([python, "-m", "ensurepip"], check=True, capture_output=True)
        command = [str(python), "-m", "pip", "install", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT)
    if done.returncode and re.search(
        r"(?i)failed to fetch|connect|resolve host|name resolution", done.stderr
    ):
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def other_python3(folder: Path) -> Path:
    """Make a folder for the PATH whose `python3` knows no emberflow."""
    folder.mkdir()
    program = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}"
    (folder / "python3").symlink_to(program)
    done = subprocess.run(
        [folder / "python3", "-c", "import emberflow"], capture_output=True, text=True, env={}
    )
    assert "No module named 'emberflow'" in done.stderr, done.stderr
    return folder


def plain_environment(path: Path, home: Path) -> dict[str, str]:
    """Return the environment variables of a user who set nothing but Java."""
    return {
        "PATH": os.pathsep.join([str(path), "/usr/bin", "/bin"]),
        "HOME": str(home),
        "JAVA_HOME": os.environ["JAVA_HOME"],
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": os.environ["TMPDIR"],  # where the leak check looks
        "EMBERFLOW_TESTS": os.environ["EMBERFLOW_TESTS"],  # so that it knows whose it is
    }
