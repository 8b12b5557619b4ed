"""Every row once per epoch over all ranks, on real clusters: for all partitionings, from DataFrames and files.

All cases travel in one run, as named data, and in a second one: what must repeat is compared.
"""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow.errors import DataError
from tests.tensorflow.feed_frames import LOOSE, ROWS, partitionings
from tests.unit.test_tfrecord_reading import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.usefixtures("nothing_left")

BATCH = 8
EPOCHS = 3

Epochs = list[list[list[int]]]


def three_epochs(ctx: Any, columns: dict[str, str]) -> dict[str, tuple[int, Epochs]]:
    """Return, by name, this rank's rows and the ids of each batch of each epoch."""
    found = {}
    for name, column in columns.items():
        dataset = ctx.dataset(name, columns=[column], batch_size=BATCH, seed=5)
        epochs = [[batch[column].numpy().tolist() for batch in dataset] for _ in range(EPOCHS)]
        found[name] = (ctx.rows(name), epochs)
    return found


def file_sources(spark: "SparkSession", folder: Path) -> "dict[str, tuple[Any, Sequence[int]]]":
    spark.range(0, ROWS, 1, 3).write.parquet(str(folder / "parquet"))
    (folder / "tfrecord").mkdir()
    (folder / "tfrecord" / "a").write_bytes(numbers(0, 60))
    (folder / "tfrecord" / "b").write_bytes(numbers(60, ROWS))
    return {
        "parquet": (ef.Parquet(str(folder / "parquet")), range(ROWS)),
        "parquet_filtered": (ef.Parquet(str(folder / "parquet"), filters=[("id", "<", 50)]), range(50)),
        "tfrecord": (ef.TFRecords(str(folder / "tfrecord")), range(ROWS)),
    }


def check(name: str, ranks: list[tuple[int, Epochs]], expected: "Sequence[int]") -> None:
    """The union over ranks is the data, in each epoch; steps are equal and batches even."""
    assert sum(rows for rows, _ in ranks) == len(expected), name
    for epoch in range(EPOCHS):
        parts = [epochs[epoch] for _, epochs in ranks]
        seen = sorted(chain.from_iterable(chain.from_iterable(parts)))
        assert seen == list(expected), (name, epoch)
        assert len({len(part) for part in parts}) == 1, (name, epoch)
        for part in parts:
            sizes = [len(batch) for batch in part]
            assert max(sizes) <= BATCH, (name, epoch)
            assert max(sizes) - min(sizes) <= 1, (name, epoch)
    if len(expected) >= 20:
        rank = max(ranks)[1]
        assert len({tuple(chain.from_iterable(epoch)) for epoch in rank}) == EPOCHS, name


def check_every_row_once(spark: "SparkSession", folder: Path, again: "Sequence[str]" = ()) -> None:
    """Run with all cases, and again with those named `again`, or with all."""
    cases = {**partitionings(spark), **file_sources(spark, folder)}
    assert len(cases) >= 12

    def epochs_of(names: "Sequence[str]") -> list[Any]:
        columns = {name: "x" if name == "tfrecord" else "id" for name in names}
        result = ef.run(
            lambda ctx: three_epochs(ctx, columns),
            workers=2,
            data={name: cases[name][0] for name in names},
            spark=spark,
            verbose=False,
        )
        return [report.value for report in result.reports]

    first, second = epochs_of([*cases]), epochs_of(again or [*cases])
    for name, (_, expected) in cases.items():
        check(name, [rank[name] for rank in first], expected)
        if name not in second[0]:
            continue
        if name in LOOSE:  # its own shuffle may give its rows other keys: the set is the same
            check(name, [rank[name] for rank in second], expected)
        else:
            assert [rank[name] for rank in first] == [rank[name] for rank in second], name
    assert first[1]["all_to_rank_0"][0] == first[1]["one_row"][0] + first[0]["one_row"][0] - 1 == 0


@pytest.mark.smoke
def test_every_row_once_on_a_cluster(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    check_every_row_once(spark_cluster, tmp_path, again=("skewed", "hashed", "parquet", "tfrecord"))


@pytest.mark.full
def test_all_cases_come_again_in_the_same_order(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    check_every_row_once(spark_cluster, tmp_path)


@pytest.mark.full
@pytest.mark.smoke
def test_every_row_once_on_connect(spark_connect: "SparkSession", tmp_path: Path) -> None:
    check_every_row_once(spark_connect, tmp_path)


def check_no_row(spark: "SparkSession") -> None:
    with pytest.raises(DataError, match=r"at least one row(.|\n)*'train'"):
        ef.run(lambda _: None, workers=2, data=spark.range(0, 9, 1, 3).where("id < 0"), spark=spark)
    frames = {"train": spark.range(5), "validation": spark.range(9).where("id < 0")}
    with pytest.raises(DataError, match=r"at least one row(.|\n)*'validation'"):
        ef.run(lambda _: None, workers=2, data=frames, spark=spark)


def test_no_row_is_an_error_on_a_cluster(spark_cluster: "SparkSession") -> None:
    check_no_row(spark_cluster)


@pytest.mark.full
def test_no_row_is_an_error_on_connect(spark_connect: "SparkSession") -> None:
    check_no_row(spark_connect)
