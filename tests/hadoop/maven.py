"""Jars from Maven for tests: the test is skipped with the reason where Maven cannot bring them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TIMEOUT = 600.0  # seconds: the kit of AWS has more than half a gigabyte
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>emberflow.tests</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{exclusions}
  </dependency></dependencies>
</project>
"""
EVERYTHING = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def maven_jars(artifact: str, folder: Path, *, alone: bool = False) -> list[Path]:
    """Return the jar of an artifact, ``group:name:version``, and those that it needs, in Maven's own folder.

    Args:
        artifact: What to bring.
        folder: An empty folder for Maven's files.
        alone: Leave out what it needs: Spark has it.
    """
    program = shutil.which("mvn")
    if program is None:
        pytest.skip(f"Maven brings {artifact}, and there is no `mvn` on the PATH")
    (folder / "pom.xml").write_text(POM.format(*artifact.split(":"), exclusions=EVERYTHING if alone else ""))
    listed = folder / "jars"
    goal = ("dependency:build-classpath", f"-Dmdep.outputFile={listed}", "-DincludeScope=runtime")
    try:
        done = subprocess.run(
            [program, "-q", "-B", *goal], capture_output=True, text=True, timeout=TIMEOUT, cwd=folder
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"Maven did not bring {artifact} in {TIMEOUT:.0f} s")
    if done.returncode:
        pytest.skip(f"Maven cannot bring {artifact}: {done.stdout.strip()[-500:]}")
    return [Path(jar) for jar in listed.read_text().strip().split(os.pathsep)]
