"""A hundred runs in one driver: nothing grows, in the driver or in Spark's processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sessions import Sessions

WARM = 20
MEGABYTE = 1 << 20
# What may come on top between the 20th run and the 100th. One thing kept per run would be 80.
BOUNDS = {
    "driver descriptors": 8,
    "driver threads": 4,
    "driver bytes": 12 * MEGABYTE,
    "folders": 8,
    "python processes": 2,
    "python descriptors": 12,
    "python bytes": 24 * MEGABYTE,
    "executors processes": 0,
    "executors descriptors": 24,
    "jvm processes": 0,
    "jvm descriptors": 24,
    "others processes": 0,
}


def lowest(lines: list[dict[str, int]]) -> dict[str, int]:
    """Return the least of each kind among a few runs: a run's last thread or process may just be ending."""
    return {
        name: min(line.get(name, 0) for line in lines) for name in {name for line in lines for name in line}
    }


def growth(lines: list[dict[str, int]]) -> dict[str, int]:
    """Return what there is more at the end than after the first runs, beyond its bound."""
    before, after = lowest(lines[WARM - 5 : WARM]), lowest(lines[-5:])
    grown = {name: after.get(name, 0) - before.get(name, 0) for name in BOUNDS}
    return {name: more for name, more in grown.items() if more > BOUNDS[name]}


def test_a_leak_of_one_thing_per_run_would_be_seen() -> None:
    steady = [dict.fromkeys(BOUNDS, 1000 * MEGABYTE) for _ in range(100)]
    assert growth(steady) == {}
    for name in BOUNDS:
        unit = MEGABYTE if name.endswith("bytes") else 1
        leaking = [line | {name: line[name] + number * unit} for number, line in enumerate(steady)]
        assert set(growth(leaking)) == {name}


@pytest.mark.full
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("nothing_left")
def test_a_hundred_runs_leave_nothing_more_than_twenty(tmp_path: Path, sessions: Sessions) -> None:
    sessions.close()
    command = [sys.executable, "-m", "tests.spark.endurance_driver", "local-cluster[2,1,1024]"]
    env = os.environ | {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    with (tmp_path.parent / "endurance.log").open("wb") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, Path(log.name).read_text()[-4000:]
    for name in sorted(BOUNDS):
        print(name, lines[WARM - 1].get(name, 0), "->", lines[-1].get(name, 0))
    assert growth(lines) == {}
