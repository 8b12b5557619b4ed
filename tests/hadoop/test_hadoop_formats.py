"""Hadoop's own TFRecord formats, of the public jar: they read what Emberflow writes, and the other way round."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.hadoop.maven import maven_jars
from tests.sessions import Sessions

ARTIFACT = "org.tensorflow:tensorflow-hadoop:1.15.0"


@pytest.mark.full
def test_records_go_both_ways_plain_and_compressed(tmp_path: Path, sessions: Sessions) -> None:
    (jar,) = maven_jars(ARTIFACT, tmp_path, alone=True)
    sessions.close()  # one JVM at a time is enough for two cores
    command = [sys.executable, "-m", "tests.hadoop.formats_driver", str(jar), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {
        f"{side}, {compression}"
        for side in ("their reader", "our reader")
        for compression in ("none", "gzip", "zlib")
    }
    assert all(labels == list(range(100)) for labels in found.values())
    for compression, ending in {"none": "", "gzip": ".gz", "zlib": ".deflate"}.items():
        assert (tmp_path / f"theirs-{compression}" / f"part-r-00000{ending}").exists()
