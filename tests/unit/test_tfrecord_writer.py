"""The writers as Spark calls them: tasks, commits, aborts and repeated commits, without a Spark session."""

import pickle
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from emberflow import storage
from emberflow.errors import ConfigError, StorageError
from emberflow.tfrecord.input_files import find_files
from emberflow.tfrecord.options import parse_options
from emberflow.tfrecord.spark_streaming import TFRecordStreamReader, TFRecordStreamWriter
from emberflow.tfrecord.spark_writer import TFRecordWriter
from tests.unit.test_tfrecord_reading import rows_of, xs

SCHEMA = StructType([StructField("x", LongType()), StructField("k", StringType())])


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "out") if request.param == "local" else f"memory://{uuid.uuid4().hex}/out"


@contextmanager
def task(partition: int) -> Iterator[None]:
    """Be the task of a partition, as Spark tells a Python worker."""
    context = TaskContext()
    context._partitionId = partition
    TaskContext._setTaskContext(context)
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


def run_tasks(job: TFRecordWriter | TFRecordStreamWriter, *tasks: Sequence[int]) -> list[Any]:
    """Run one task per list of values; return their messages."""
    messages = []
    for partition, values in enumerate(tasks):
        with task(partition):
            messages.append(job.write(batches(*values)))
    return messages


def batches(*values: int) -> Any:
    yield pa.RecordBatch.from_pydict({"x": list(values), "k": [f"k{value % 2}" for value in values]})


def writer_for(path: str, *, overwrite: bool = False, **options: str) -> TFRecordWriter:
    made = TFRecordWriter(SCHEMA, parse_options({"path": path, **options}), overwrite=overwrite)
    return pickle.loads(pickle.dumps(made))


def write(path: str, *tasks: list[int], overwrite: bool = False, **options: str) -> None:
    job = writer_for(path, overwrite=overwrite, **options)
    job.commit(run_tasks(job, *tasks))


def names(path: str) -> list[str]:
    base = len(path.rstrip("/")) + 1
    return [file.path[base:] for file in storage.list_files(path)]


def test_append_and_overwrite(folder: str) -> None:
    write(folder, [1, 2], [3])
    assert xs(rows_of(folder)) == [1, 2, 3]
    assert "_SUCCESS" in names(folder)
    write(folder, [4])
    assert xs(rows_of(folder)) == [1, 2, 3, 4]
    write(folder, [5], overwrite=True)
    assert xs(rows_of(folder)) == [5]
    assert len(names(folder)) == 2, "one file, _SUCCESS, nothing left over"
    assert storage.list_folder(folder.rpartition("/")[0]) == [folder], "nothing beside it either"


def test_an_attempt_that_did_not_count_leaves_nothing(folder: str) -> None:
    job = writer_for(folder)
    job.write(batches(1, 2))  # the first attempt of the task: killed after writing, its message is lost
    job.commit([job.write(batches(1, 2))])
    assert xs(rows_of(folder)) == [1, 2]
    assert len(names(folder)) == 2


def test_a_task_that_fails_leaves_no_file(folder: str) -> None:
    def failing() -> Any:
        yield from batches(1)
        raise OSError("the row could not be computed")

    job = writer_for(folder)
    with pytest.raises(OSError, match="could not be computed"):
        job.write(failing())
    assert names(folder) == []


@pytest.mark.parametrize("overwrite", [True, False])
def test_an_aborted_job_leaves_the_old_data(folder: str, overwrite: bool) -> None:
    write(folder, [1])
    before = names(folder)
    job = writer_for(folder, overwrite=overwrite)
    job.abort([job.write(batches(2)), None])
    assert names(folder) == before
    assert xs(rows_of(folder)) == [1]


def test_overwriting_keeps_the_old_data_until_the_new_is_complete(folder: str) -> None:
    write(folder, [1])
    job = writer_for(folder, overwrite=True)
    message = job.write(batches(2))
    assert xs(rows_of(folder)) == [1]
    job.commit([message])
    assert xs(rows_of(folder)) == [2]


def test_partition_folders_and_their_overwriting(folder: str) -> None:
    keys = {"partitionColumns": '["k"]'}
    write(folder, [0, 1, 2], [3], **keys)
    found = [name for name in names(folder) if name != "_SUCCESS"]
    assert sorted({name.partition("/")[0] for name in found}) == ["k=k0", "k=k1"]
    rows = rows_of(folder, pa.schema([("x", pa.int64()), ("k", pa.string())]))
    assert sorted((row["x"], row["k"]) for row in rows) == [(0, "k0"), (1, "k1"), (2, "k0"), (3, "k1")]
    write(folder, [5], overwrite=True, partitionOverwriteMode="dynamic", **keys)
    assert xs(rows_of(folder, pa.schema([("x", pa.int64())]))) == [0, 2, 5], "the other folder stays"
    write(folder, [7], overwrite=True, **keys)
    assert xs(rows_of(folder, pa.schema([("x", pa.int64())]))) == [7]


def test_many_partition_values_in_one_task(tmp_path: Path) -> None:
    schema = StructType([StructField("x", LongType()), StructField("k", LongType())])
    options = parse_options({"path": str(tmp_path / "out"), "partitionColumns": "k"})
    job = TFRecordWriter(schema, options, overwrite=False)
    rows = [{"x": number, "k": number % 70} for number in range(210)]
    parts = (pa.RecordBatch.from_pylist(rows[start : start + 70]) for start in range(0, 210, 70))
    job.commit([job.write(parts)])
    back = rows_of(tmp_path / "out", pa.schema([("x", pa.int64()), ("k", pa.int64())]))
    assert sorted(back, key=lambda row: row["x"]) == rows


def test_records_per_file(folder: str) -> None:
    write(folder, list(range(10)), recordsPerFile="4", compression="gzip")
    found = [name for name in names(folder) if name != "_SUCCESS"]
    assert len(found) == 3
    assert all(name.endswith(".tfrecord.gz") for name in found)
    assert xs(rows_of(folder)) == list(range(10))


def test_nothing_to_write_leaves_an_empty_folder(folder: str) -> None:
    write(folder, [1])
    write(folder, overwrite=True)
    assert names(folder) == ["_SUCCESS"]


def test_local_files_are_put_into_place_by_each_task(tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    job = writer_for(path, writeLocality="local")
    job.write(batches(1, 2))
    assert xs(rows_of(path)) == [1, 2]
    job.commit([])
    with pytest.raises(ConfigError, match="overwrite"):
        writer_for(path, writeLocality="local", overwrite=True)
    with pytest.raises(ConfigError, match="local path"):
        writer_for("memory://x", writeLocality="local")


def test_a_task_repeated_on_the_same_machine_replaces_its_local_files(tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    job = writer_for(path, writeLocality="local", recordsPerFile="1")
    with task(1):
        job.write(batches(1, 2, 3))
        job.write(batches(1, 2))  # Spark heard nothing of the first run; the rows came out fewer
    assert xs(rows_of(path)) == [1, 2]
    assert len(names(path)) == 2
    with task(2):
        job.write(batches(4))
    assert xs(rows_of(path)) == [1, 2, 4], "the files of other tasks stay"


def test_what_cannot_be_written_is_said_before_the_job_runs(folder: str) -> None:
    with pytest.raises(ConfigError, match=r"Received: \['z'\]"):
        writer_for(folder, partitionColumns="z")
    with pytest.raises(ConfigError, match="a column that is not in partition_by"):
        writer_for(folder, partitionColumns="x,k")
    with pytest.raises(ConfigError, match="one path"):
        TFRecordWriter(SCHEMA, parse_options({}), overwrite=False)
    write(folder, [1])
    with pytest.raises(StorageError, match="which exists"):
        writer_for(folder, ifExists="error")


def test_narrowing_doubles_warns_once(folder: str) -> None:
    schema = StructType([StructField("d", DoubleType()), StructField("e", DoubleType())])
    with pytest.warns(UserWarning, match=r"\['d', 'e'\] are stored as 32 bit") as caught:
        TFRecordWriter(schema, parse_options({"path": folder}), overwrite=False)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TFRecordWriter(schema, parse_options({"path": folder, "doubles": "bytes"}), overwrite=False)


def stream_writer(path: str, *, checkpoint: str = "here", overwrite: bool = False) -> TFRecordStreamWriter:
    options = parse_options({"path": path, "checkpointLocation": checkpoint})
    return TFRecordStreamWriter(SCHEMA, options, overwrite=overwrite)


def test_a_micro_batch_is_written_once_however_often_it_is_run(folder: str) -> None:
    first = stream_writer(folder)
    first.commit(run_tasks(first, [1, 2], [3]), 0)
    again = stream_writer(folder)  # the driver died before Spark noted the commit: the batch runs again
    again.commit(run_tasks(again, [1, 2], [3]), 0)
    assert xs(rows_of(folder)) == [1, 2, 3]
    again.commit([again.write(batches(4))], 1)
    other = stream_writer(folder, checkpoint="another query")
    other.commit([other.write(batches(5))], 0)
    assert xs(rows_of(folder)) == [1, 2, 3, 4, 5]


def test_a_commit_that_was_interrupted_is_repeated_cleanly(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stream_writer(folder)
    messages = run_tasks(first, [1, 2], [3])
    real = storage.rename

    def dying(source: str, target: str) -> None:
        if source.endswith(messages[1].files[0]):
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(storage, "rename", dying)
    with pytest.raises(KeyboardInterrupt):
        first.commit(list(messages), 0)
    monkeypatch.undo()
    again = stream_writer(folder)
    again.commit(run_tasks(again, [1, 2], [3]), 0)
    assert xs(rows_of(folder)) == [1, 2, 3]


def test_complete_mode_replaces_and_abort_deletes(folder: str) -> None:
    sink = stream_writer(folder, overwrite=True)
    sink.commit([sink.write(batches(1))], 0)
    sink.commit([sink.write(batches(1, 2))], 1)
    assert xs(rows_of(folder)) == [1, 2]
    sink.abort([sink.write(batches(9)), None], 2)
    assert xs(rows_of(folder)) == [1, 2]
    assert not any("_temporary" in name for name in names(folder))


def test_a_stream_reads_each_new_file_once(tmp_path: Path) -> None:
    path = str(tmp_path / "in")
    write(path, [1])
    reader = TFRecordStreamReader(SCHEMA, parse_options({"path": path}))
    start = reader.initialOffset()
    middle = reader.latestOffset(start)
    assert reader.latestOffset(middle) == middle
    write(path, [2], [3])
    end = TFRecordStreamReader(SCHEMA, parse_options({"path": path})).latestOffset(middle)

    def read(a: Any, b: Any) -> list[int]:
        tasks = reader.partitions(a, b)
        return sorted(
            x for task in tasks for batch in reader.read(task) for x in batch.column("x").to_pylist()
        )

    assert (read(start, middle), read(middle, end), read(start, end)) == ([1], [2, 3], [1, 2, 3])
    assert reader.partitions(end, end) == []


def test_a_stream_forgets_old_files_but_never_reads_them_again(tmp_path: Path) -> None:
    path = tmp_path / "in"
    write(str(path), [1])
    reader = TFRecordStreamReader(SCHEMA, parse_options({"path": str(path), "maxFileAge": "10s"}))
    (old,) = path.glob("part*")
    import os

    os.utime(old, (1000, 1000))
    first = reader.latestOffset(reader.initialOffset())
    assert list(first["seen"]) == [str(old)]
    write(str(path), [2])
    second = reader.latestOffset(first)
    assert str(old) not in second["seen"]
    assert len(second["seen"]) == 1
    assert reader.latestOffset(second) == second
    assert len(find_files(parse_options({"path": str(path)}))) == 2


def test_a_stream_says_when_a_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "in"
    write(str(path), [1])
    reader = TFRecordStreamReader(SCHEMA, parse_options({"path": str(path)}))
    end = reader.latestOffset(reader.initialOffset())
    for file in path.glob("part*"):
        file.unlink()
    with pytest.raises(StorageError, match="were deleted before they were read"):
        reader.partitions(reader.initialOffset(), end)
