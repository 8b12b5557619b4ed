import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from emberflow._feed.arrays import KEY
from emberflow._feed.file_source import Fragment, rank_batches, rank_ranges
from emberflow._feed.parquet import Parquet
from emberflow.errors import ConfigError, StorageError


def write(folder: Path, name: str, start: int, rows: int, group: int) -> None:
    table = pa.table(
        {"id": range(start, start + rows), "x": [float(row % 3) for row in range(start, start + rows)]}
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name, row_group_size=group)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of 25, 4 and 11 rows in row groups of at most 10."""
    write(tmp_path / "d", "b.parquet", 25, 4, 10)
    write(tmp_path / "d", "a.parquet", 0, 25, 10)
    write(tmp_path / "d", "c.parquet", 29, 11, 10)
    (tmp_path / "d" / "_SUCCESS").touch()
    return tmp_path / "d"


def rows_of(source: Any, ranks: int) -> list[list[dict[str, Any]]]:
    return [
        [row for batch in rank_batches(source, rank, ranks) for row in batch.to_pylist()]
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 50])
def test_every_row_goes_to_one_rank_in_file_order(folder: Path, ranks: int) -> None:
    parts = rows_of(Parquet(str(folder)), ranks)
    assert [row["id"] for part in parts for row in part] == list(range(40))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    keys = [row[KEY] for part in parts for row in part]
    assert keys == sorted(set(keys))
    assert parts == rows_of(pickle.loads(pickle.dumps(Parquet(str(folder)))), ranks)


@pytest.mark.parametrize(
    "filters", [[("x", "=", 1.0)], pc.field("x") == 1.0, [[("x", "=", 1.0), ("id", ">=", 0)]]]
)
@pytest.mark.parametrize("ranks", [1, 3])
def test_filters_keep_what_they_say_also_in_shared_row_groups(folder: Path, filters: Any, ranks: int) -> None:
    source = Parquet(str(folder), columns=["id"], filters=filters)
    parts = rows_of(source, ranks)
    assert [row["id"] for part in parts for row in part] == [row for row in range(40) if row % 3 == 1]
    keys = [row[KEY] for part in parts for row in part]
    assert keys == sorted(set(keys))
    assert set(parts[0][0]) == {KEY, "id"}


def test_row_groups_are_skipped_by_their_statistics(folder: Path) -> None:
    fragments = Parquet(str(folder), filters=[("id", ">=", 35)]).fragments()
    assert [(Path(fragment.path).name, fragment.part) for fragment in fragments] == [
        ("c.parquet", 0),
        ("c.parquet", 1),
    ]


def test_folders_named_by_values_become_columns(tmp_path: Path) -> None:
    write(tmp_path / "day=1", "a.parquet", 0, 2, 10)
    write(tmp_path / "day=2", "a.parquet", 2, 2, 10)
    ((*rows,),) = rows_of(Parquet(str(tmp_path), columns=["id", "day"]), 1)
    assert [(row["id"], row["day"]) for row in rows] == [(0, 1), (1, 1), (2, 2), (3, 2)]
    for ranks in (1, 3):
        parts = rows_of(Parquet(str(tmp_path), columns=["id"], filters=[("day", "=", 2)]), ranks)
        assert [row["id"] for part in parts for row in part] == [2, 3]


def test_other_file_systems_are_read_through_fsspec(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/feed-files", recursive=True)
    try:
        parts = rows_of(Parquet("memory://feed-files"), 2)
    finally:
        memory.rm("/feed-files", recursive=True)
    assert [row["id"] for part in parts for row in part] == list(range(40))


def test_wrong_names_and_paths_are_said(folder: Path) -> None:
    with pytest.raises(ConfigError, match="there are: id, x"):
        Parquet(str(folder), columns=["y"]).fragments()
    with pytest.raises(ConfigError, match="list of names"):
        Parquet(str(folder), columns="id")
    with pytest.raises(StorageError, match="none-here"):
        Parquet(str(folder / "none-here")).fragments()
    with pytest.raises(ConfigError, match="filters"):
        Parquet(str(folder), filters=[("x", "almost", 1)]).fragments()
    (folder / "broken.parquet").write_bytes(b"not parquet")
    with pytest.raises(StorageError):
        Parquet(str(folder)).fragments()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4:200] = b"\xff" * 196
    path.write_bytes(data)


def rewrite(path: Path) -> None:
    path.unlink()
    write(path.parent, path.name, 0, 8, 10)


@pytest.mark.parametrize(
    ("change", "said", "remedy"),
    [
        (
            Path.unlink,
            "FileNotFoundError: .* the driver has listed this file",
            "storage that all executors share",
        ),
        (damage, "OSError", "write a damaged file again"),
        (rewrite, "with 8 rows in row group 0, and 10 when the run began", "Write new files"),
    ],
    ids=["missing", "damaged", "rewritten"],
)
def test_a_file_that_is_not_what_the_driver_listed_is_named(
    folder: Path, change: Callable[[Path], None], said: str, remedy: str
) -> None:
    listed = Parquet(str(folder)).fragments()
    change(folder / "a.parquet")
    there = Parquet(str(folder))  # on an executor, which looks for itself
    with pytest.raises(StorageError, match=said) as caught:
        list(rank_batches(there, 0, 1, listed))
    assert f"path='{folder / 'a.parquet'}'" in str(caught.value)
    assert remedy in caught.value.fix


def test_fragments_of_unknown_rows_stay_whole_and_are_balanced_by_bytes() -> None:
    fragments = [Fragment(path=name, bytes=size) for name, size in [("a", 5), ("b", 9), ("c", 4)]]
    parts = rank_ranges(fragments, 2)
    assert [[piece.fragment.path for piece in part] for part in parts] == [["b"], ["a", "c"]]
    assert all(piece.stop is None for part in parts for piece in part)
