"""What the terminal of a program on a local master shows: each print of a node once."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from pyspark.sql import SparkSession
import emberflow as ef

def train(ctx):
    os.write(2, b"I0000 00:00:1794795688.839435   25790 cudart_stub.cc:31] Could not find cuda drivers\\n")
    print("hello")

spark = SparkSession.builder.master("local[1]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
for verbose in (True, False):
    print("begin", file=sys.stderr, flush=True)
    ef.run(train, workers=1, spark=spark, verbose=verbose)
print("end", file=sys.stderr, flush=True)
"""


@pytest.mark.usefixtures("nothing_left")
def test_each_print_of_a_node_is_shown_once_and_tensorflows_start_is_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == ""
    *_, shown, quiet = done.stderr.split("begin\n")
    assert (shown, quiet) == ("[chief 0] hello\n", "end\n")
