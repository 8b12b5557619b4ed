"""The comparisons of test_data_parallel on real executors: launched by ef.run, distributed by ctx.distribute.

Many cases run in one launch, since starting the nodes costs more than any of them.
"""

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef
from tests.tensorflow.parallel_numbers import LOCAL, QUICK, THREE, TOLERANCE, TWO, differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow._node.context import Context

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(900)]

Numbers = dict[str, Any]
SCENES = ("one_rank_stops_at_a_step", "backup_is_restored_by_all", "saved_files_are_plain_keras")


class Compare:
    """What each node runs: every case together with the others, and its share of the cases alone."""

    def __init__(self, folder: Path, cases: list[str], scenes: tuple[str, ...] = ()) -> None:
        self.folder, self.cases, self.scenes = folder, cases, scenes

    def __call__(self, ctx: "Context") -> None:
        from tests.tensorflow import parallel_scenes
        from tests.tensorflow.parallel_rank import train
        from tests.tensorflow.parallel_term_cases import ALL_CASES

        together = {
            case: train(ALL_CASES[case], ctx.distribute, ctx.rank, ctx.work_dir) for case in self.cases
        }
        transport = ctx._services.parallel.transport()
        scenes = {name: getattr(parallel_scenes, name)(transport, str(ctx.work_dir)) for name in self.scenes}
        mine = [case for case in self.cases[ctx.rank :: ctx.workers] if "batchnorm" not in case]
        alone = {
            case: train(ALL_CASES[case], None, ctx.rank, ctx.work_dir) for case in mine if case not in LOCAL
        }
        found = {"together": together, "alone": alone, "scenes": scenes}
        (self.folder / str(ctx.rank)).write_bytes(pickle.dumps(found))  # too much for a report


def compare(spark: "SparkSession", workers: int, transport: Any, job: Compare) -> list[dict[str, Any]]:
    """Run all on a cluster; check the numbers; return what the nodes brought back."""
    ef.run(job, workers=workers, transport=transport, spark=spark, verbose=False)
    values = [pickle.loads((job.folder / str(rank)).read_bytes()) for rank in range(workers)]
    alone = {case: numbers for value in values for case, numbers in value["alone"].items()}
    wrong = {}
    for case in job.cases:
        ranks = [value["together"][case] for value in values]
        wrong[f"{case}: ranks differ"] = len({str(rank["bits"]) for rank in ranks}) > 1
        for rank in ranks:
            wrong[f"{case}: NaN"] = any(np.isnan(rank[name]).any() for name in rank if name != "bits")
            if case in alone:
                wrong[f"{case}: not as one process"] = differences(
                    rank, alone[case], TOLERANCE.get(case, 1e-5)
                )
    assert {name: found for name, found in wrong.items() if found} == {}
    assert set(job.cases) - set(alone) <= {*LOCAL, "three_batchnorm"}
    return values


@pytest.mark.smoke
def test_two_workers_equal_one_process(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    compare(spark_cluster, 2, "ring", Compare(tmp_path, QUICK))


@pytest.mark.full
@pytest.mark.parametrize("transport", ["ring", "collectives"])
def test_two_workers_equal_one_process_in_all_cases(
    transport: str, spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    first, second = compare(spark_cluster, 2, transport, Compare(tmp_path, [*TWO, *LOCAL], SCENES))
    seeds = [value["together"]["dropout"]["seeds"] for value in (first, second)]
    assert (seeds[0] != seeds[1]).any()
    stopped = [value["scenes"]["one_rank_stops_at_a_step"] for value in (first, second)]
    assert stopped[0] == stopped[1]
    assert stopped[0][:2] == [7, 2]  # steps, epochs: one step after rank 1 wanted to
    backups = [value["scenes"]["backup_is_restored_by_all"] for value in (first, second)]
    assert [backup["epochs"] for backup in backups] == [[2, 3]] * 2
    assert [backup["has_files"] for backup in backups] == [True, False]
    assert backups[0]["bits"] == backups[1]["bits"]
    assert backups[0]["distance"] <= 1e-6
    for rank, value in enumerate((first, second)):
        saved = value["scenes"]["saved_files_are_plain_keras"]
        assert saved == {"loaded": True, "iterations": 4, "hooked": [], "served": True, "predicted": rank + 1}


@pytest.mark.full
@pytest.mark.parametrize("transport", ["ring", "collectives"])
def test_three_workers_equal_one_process(transport: str, spark_three: "SparkSession", tmp_path: Path) -> None:
    compare(spark_three, 3, transport, Compare(tmp_path, [*THREE, "three_batchnorm"]))
