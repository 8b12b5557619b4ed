"""A new user's first minutes: install the wheel, run README's first block, with nothing set and nothing activated."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.docs import fresh_environment as fresh
from tests.sessions import Sessions

README = (fresh.ROOT / "README.md").read_text()
BLOCK_TIMEOUT = 280.0


# The data source is run by the JVM, which knows the PATH only, unless it is registered; and nothing may stay changed.
MORE = """
ef.tfrecord.write(df.limit(100), "rows.tfrecord")  # registers it, since Spark does not find it
print("tfrecord rows", spark.read.format("tfrecord").load("rows.tfrecord").count())
import os
assert spark.sparkContext.pythonExec == "python3", spark.sparkContext.pythonExec
assert "PYSPARK_PYTHON" not in os.environ
"""

OLD_NAMES = """
from pathlib import Path
import hops.tflauncher, spark_tensorflow_distributor, tensorflowonspark.TFCluster, tensorspark.core.spark_session
for package in (hops, spark_tensorflow_distributor, tensorflowonspark, tensorspark):
    print(Path(package.__file__).parent.parent)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fresh.built_wheel(tmp_path_factory.mktemp("wheel"))


def run_by(python: Path, program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program by the environment's Python, on a PATH whose `python3` is another one."""
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [python, "program.py"],
        cwd=folder,
        env=fresh.plain_environment(fresh.other_python3(folder / "bin"), folder),
        capture_output=True,
        text=True,
        timeout=BLOCK_TIMEOUT,
    )


def assert_first_block_runs(python: Path, folder: Path) -> None:
    block = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[0]
    done = run_by(python, block + MORE, folder)
    assert done.returncode == 0, done.stderr[-4000:]
    table = [line for line in done.stdout.splitlines() if line.startswith("|[")]
    assert len(table) == 3, done.stdout
    assert "tfrecord rows 100" in done.stdout
    assert not re.search(r"^\d\d/\d\d/\d\d \S+ ERROR", done.stderr, re.MULTILINE), done.stderr[-4000:]


@pytest.mark.full
@pytest.mark.usefixtures("nothing_left")
def test_the_first_block_runs_with_what_the_wheel_declares(
    wheel: Path, tmp_path: Path, sessions: Sessions
) -> None:
    sessions.close()
    python, packages = fresh.bare_environment(tmp_path / "env")
    fresh.install_by_links(wheel, packages)
    assert_first_block_runs(python, tmp_path)


@pytest.mark.full
def test_old_names_come_with_their_own_wheel_and_refuse_the_old_library(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "wheel").mkdir()
    old_names = fresh.built_wheel(tmp_path / "wheel", fresh.ROOT / "compat")
    python, packages = fresh.bare_environment(tmp_path / "env")
    fresh.install_by_links(wheel, packages)
    fresh.unpack(old_names, packages)
    (metadata,) = packages.glob("emberflow_compat-*.dist-info")
    assert "Requires-Dist: emberflow\n" in (metadata / "METADATA").read_text()

    done = run_by(python, OLD_NAMES, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(packages)] * 4

    (packages / "tensorflowonspark-2.2.5.dist-info").mkdir()
    told = "Metadata-Version: 2.1\nName: tensorflowonspark\nVersion: 2.2.5\n"
    (packages / "tensorflowonspark-2.2.5.dist-info" / "METADATA").write_text(told)
    done = subprocess.run(
        [python, "-c", "import tensorflowonspark"], capture_output=True, text=True, timeout=BLOCK_TIMEOUT
    )
    assert "tensorflowonspark 2.2.5" in done.stderr
    assert "pip uninstall" in done.stderr


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("nothing_left")
def test_the_first_block_runs_after_a_real_install(wheel: Path, tmp_path: Path, sessions: Sessions) -> None:
    sessions.close()
    python, _ = fresh.bare_environment(tmp_path / "env")
    fresh.install_from_index(wheel, python)
    assert_first_block_runs(python, tmp_path)
