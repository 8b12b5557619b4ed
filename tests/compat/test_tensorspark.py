"""Programs of tensorspark: graphs of TensorFlow 1 that train on an RDD, and how their updates are merged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emberflow as ef
from tensorspark.core.feed_rows import Feed, encoded
from tensorspark.core.partitioner import RandomPartitioner
from tensorspark.core.weight_combiner import (
    DeltaWeightCombiner,
    MeanWeightCombiner,
    Parameter,
    UpdateMeanWeightCombiner,
    WeightCombiner,
    combiner_of,
)

PROGRAM = Path(__file__).with_name("tensorspark_mnist.py")


def told_by(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=380
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("told ")]
    assert len(lines) == 1, done.stdout[-2000:] + done.stderr[-6000:]
    told: dict[str, Any] = json.loads(lines[0].removeprefix("told "))
    return told


@pytest.mark.timeout(400)
def test_the_readmes_program_trains_the_drivers_session(nothing_left: None) -> None:
    told = told_by("local[3]")
    assert "Spark Connect has none" in told["refused"]
    assert told["done"] is None
    assert told["exact"] < 1e-5
    assert told["mean"] > 0.9


@pytest.mark.full
@pytest.mark.timeout(400)
def test_epochs_with_a_combiner_of_ones_own_on_executors(nothing_left: None) -> None:
    told = told_by("local-cluster[3,1,1024]", "all")
    assert told["delta"] > 0.9
    assert told["grew"] == 0


def replayed(combiner: WeightCombiner) -> list[float]:
    """Return the server's values while two workers, which begin at 10, each add 1 six times in turn."""
    function = combiner_of(combiner, [Parameter(name="w:0", shape=())])
    if isinstance(function, str):  # what Emberflow does under this name, by the combiner itself
        assert type(combiner) is DeltaWeightCombiner

        class Same(DeltaWeightCombiner):
            pass

        function = combiner_of(Same(), [Parameter(name="w:0", shape=())])
        assert callable(function)
    server, pulled, values = np.array([10.0]), [np.array([10.0])] * 2, []
    for push in range(12):
        rank = push % 2
        server = function(server, pulled[rank] + 1, pulled[rank], rank=rank, variable=0)
        pulled[rank] = server
        values.append(float(server[0]))
    return values


def test_deltas_of_two_workers_add_up() -> None:
    """The old library made 318 of this."""
    assert replayed(DeltaWeightCombiner()) == [float(value) for value in range(11, 23)]


def test_a_push_moves_the_mean_by_its_part() -> None:
    assert replayed(MeanWeightCombiner(2))[:3] == [10.5, 10.75, 11.125]


def test_the_first_push_replaces_and_later_ones_are_averaged() -> None:
    assert replayed(UpdateMeanWeightCombiner())[:3] == [11.0, 11.0, 11.5]


def test_combiners_that_emberflow_has_go_by_name() -> None:
    assert combiner_of(None, []) == "mean"
    assert combiner_of(DeltaWeightCombiner(), []) == "delta"


def test_a_delta_must_know_its_worker() -> None:
    combiner = DeltaWeightCombiner()
    with pytest.raises(ValueError, match="whose push"):
        combiner.compute(np.zeros(2), np.ones(2))
    assert combiner.compute(np.zeros(2), np.ones(2), worker_id="1", name="a").tolist() == [1, 1]
    assert combiner.compute(np.full(2, 5.0), np.full(2, 3.0), worker_id="1", name="a").tolist() == [7, 7]
    combiner.reset_value()
    assert combiner.last_weight == {}


@pytest.mark.parametrize("method", ["compute", "get_status"])
def test_the_base_class_has_nothing_to_compute(method: str) -> None:
    arguments = (np.zeros(1), np.zeros(1)) if method == "compute" else ()
    with pytest.raises(NotImplementedError):
        getattr(WeightCombiner(), method)(*arguments)


FEEDS = [
    Feed(name="x:0", column="feed_0000", dtype="float32", shape=(2,)),
    Feed(name="name:0", column="feed_0001", dtype="string", shape=()),
]


def test_rows_become_bytes_of_the_placeholders_dtype() -> None:
    numbers, text = encoded(FEEDS, ([1, 2.5], "häuser"))
    assert np.frombuffer(numbers, np.float32).tolist() == [1.0, 2.5]
    assert bytes(text).decode() == "häuser"


@pytest.mark.parametrize(
    ("row", "problem"),
    [(([1, 2],), "one element for each name"), (([1, 2, 3], "a"), r"takes shape \(2,\)")],
)
def test_rows_that_do_not_fit_are_refused(row: Any, problem: str) -> None:
    with pytest.raises(ef.DataError, match=problem):
        encoded(FEEDS, row)


def test_a_partitioner_reaches_every_partition() -> None:
    partitioner = RandomPartitioner(3)
    assert {partitioner(key) for key in range(200)} == {0, 1, 2}
    assert partitioner == RandomPartitioner(3)
    assert partitioner != RandomPartitioner(4)
    assert hash(partitioner) == hash(RandomPartitioner(3))
