"""Datasets over spools: every row once, orders, resume, tensors of every kind."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from emberflow._feed.arrays import KEY
from emberflow._feed.dataset import DatasetOptions, Shard, TrackedDataset, make_dataset
from emberflow._feed.padding import PadOptions
from emberflow._feed.position import Position
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import Spool, SpoolWriter
from emberflow._feed.window_source import dataset_of_windows
from emberflow.errors import ConfigError, DataError

tf = pytest.importorskip("tensorflow")


def batch_of(ids: list[int], **more: Any) -> Any:
    columns = {KEY: pa.array(ids, pa.int64()), "id": pa.array(ids, pa.int64()), **more}
    return pa.RecordBatch.from_pydict(columns)


def shards_of(
    folder: Path, batches: list[list[Any]], name: str = "train", chunk_bytes: int = 1
) -> list[Shard]:
    """Spool one list of batches for each rank."""
    files = []
    for part in batches:
        with SpoolWriter(folder, chunk_bytes=chunk_bytes) as writer:
            for batch in part:
                writer.write(batch)
            files.append(writer.finish())
    facts = merge_shards(file.facts for file in files)
    shards = []
    for rank, file in enumerate(files):
        shards.append(Shard(name=name, rank=rank, spool=Spool(file), facts=facts))
        file.close()
    return shards


def split_ids(sizes: list[int], width: int = 0) -> list[list[Any]]:
    """Rows 0, 1, 2, ... over ranks of these sizes, in batches of at most seven, the later keys first.

    Each row has so many more bytes, all of them its number.
    """

    def rows(ids: list[int]) -> Any:
        more = {"wide": pa.array([bytes([each]) * width for each in ids])} if width else {}
        return batch_of(ids, **more)

    parts, start = [], 0
    for size in sizes:
        ids = list(range(start, start + size))
        parts.append([rows(ids[at : at + 7]) for at in range(0, size, 7)][::-1])
        start += size
    return parts


def ids_of(dataset: Any) -> list[list[int]]:
    return [batch["id"].numpy().tolist() for batch in dataset]


@pytest.mark.parametrize("sizes", [[20], [9, 9], [0, 13], [1, 30, 4], [1, 0, 0], [2, 2, 2]])
def test_every_row_once_in_equal_steps_in_every_epoch(tmp_path: Path, sizes: list[int]) -> None:
    options = DatasetOptions(batch_size=4, seed=3)
    datasets = [make_dataset(shard, options).dataset for shard in shards_of(tmp_path, split_ids(sizes))]
    orders = []
    for _ in range(3):
        epoch = [ids_of(dataset) for dataset in datasets]
        assert {len(batches) for batches in epoch} == {max(-(-size // 4) for size in sizes)}
        assert {int(dataset.cardinality()) for dataset in datasets} == {len(epoch[0])}
        rows = [row for batches in epoch for batch in batches for row in batch]
        assert sorted(rows) == list(range(sum(sizes)))
        orders.append(tuple(rows))
    if sum(sizes) > 8:
        assert len(set(orders)) == 3


def test_a_seed_gives_the_same_orders_again_whatever_order_the_rows_came_in(tmp_path: Path) -> None:
    (one,) = shards_of(tmp_path, [[batch_of(list(range(10))), batch_of(list(range(10, 20)))]])
    (two,) = shards_of(tmp_path, [[batch_of([19, 3, 4, *range(5, 19), 0, 1, 2])]])
    assert one.facts.each[0].digest == two.facts.each[0].digest
    options = DatasetOptions(batch_size=6, seed=11)
    first, second = (make_dataset(shard, options).dataset for shard in (one, two))
    assert [ids_of(first), ids_of(first)] == [ids_of(second), ids_of(second)]
    plain = make_dataset(two, DatasetOptions(batch_size=6, shuffle=False)).dataset
    assert [row for batch in ids_of(plain) for row in batch] == list(range(20))


WIDE = 1 << 20  # bytes of a row of which a window holds one batch


@pytest.mark.parametrize(("shuffle", "width"), [(True, 0), (False, 0), (True, WIDE)])
def test_resume_goes_on_at_the_exact_row_after_every_step(tmp_path: Path, shuffle: bool, width: int) -> None:
    options: dict[str, Any] = {"batch_size": 5, "seed": 2, "shuffle": shuffle}
    for shard in shards_of(tmp_path, split_ids([23, 11], width)):
        straight = make_dataset(shard, DatasetOptions(**options))
        assert straight.epochs is not None
        assert straight.epochs.one_batch_windows == bool(width)
        steps = straight.epochs.plan.steps
        positions, batches = [straight.position()], []
        for _ in range(2):
            for batch in straight.dataset:
                batches.append(batch["id"].numpy().tolist())
                positions.append(straight.position())
        assert len(batches) == 2 * steps
        for taken, position in enumerate(positions):
            assert position == straight.position(steps=taken)
            again = Position.from_json(position.to_json())
            resumed = make_dataset(shard, DatasetOptions(**options, start_at=again))
            assert resumed.position() == position
            assert int(resumed.dataset.cardinality()) == steps
            rest = ids_of(resumed.dataset)
            epoch_end = (taken // steps + 1) * steps
            assert rest == batches[taken:epoch_end] or taken == 2 * steps
            assert resumed.position() == straight.position(steps=epoch_end)
            if taken < steps:
                assert ids_of(resumed.dataset) == batches[steps:]


@pytest.mark.parametrize("width", [0, WIDE])
def test_resume_with_another_batch_size_takes_what_is_left(tmp_path: Path, width: int) -> None:
    shards = shards_of(tmp_path, split_ids([23, 11], width))
    position: Position | None = None
    seen: list[int] = []
    for size, steps in [(5, 2), (3, 2), (4, 99)]:
        feedings = [
            make_dataset(shard, DatasetOptions(batch_size=size, start_at=position)) for shard in shards
        ]
        places = set()
        for feeding in feedings:
            for batch in feeding.dataset.take(steps):
                seen += batch["id"].numpy().tolist()
            places.add(feeding.position())
        assert len(places) == 1
        position = Position.from_json(places.pop().to_json())
    assert sorted(seen) == list(range(34))
    assert position is not None
    assert (position.epoch, position.step, position.earlier) == (1, 0, ())


def test_wide_rows_come_whole_and_in_batches_of_their_own(tmp_path: Path) -> None:
    (shard,) = shards_of(tmp_path, split_ids([13], WIDE))
    for dtypes in ({}, {"wide": "uint8"}):
        batches = list(make_dataset(shard, DatasetOptions(batch_size=5, dtypes=dtypes)).dataset)
        assert sorted(len(batch["id"]) for batch in batches) == [4, 4, 5]
        for batch in batches:
            rows = batch["wide"].numpy()
            for number, row in zip(batch["id"].numpy(), rows, strict=True):
                assert bytes(row) == bytes([number]) * WIDE


@pytest.mark.parametrize("width", [0, WIDE])
def test_two_iterators_at_once_are_two_epochs(tmp_path: Path, width: int) -> None:
    (shard,) = shards_of(tmp_path, split_ids([12], width))
    dataset = make_dataset(shard, DatasetOptions(batch_size=5)).dataset
    seen: list[list[int]] = [[], []]
    for pair in zip(dataset, dataset, strict=True):
        for rows, batch in zip(seen, pair, strict=True):
            rows.extend(batch["id"].numpy().tolist())
    assert [sorted(rows) for rows in seen] == [list(range(12))] * 2
    assert seen[0] != seen[1]


def test_an_iterator_that_is_dropped_ends_its_generator() -> None:
    ended: list[int] = []

    def windows() -> Iterator[tuple[object, ...]]:
        try:
            for number in range(1000):
                yield (np.array([number]),)
        finally:
            ended.append(number)

    dataset = dataset_of_windows(windows, [tf.TensorSpec([None], tf.int64)]).map(lambda number: number + 1)
    gc.collect()
    iterator = iter(dataset)
    assert next(iterator).numpy().tolist() == [1]
    del iterator
    assert len(ended) == 1  # some elements further: tf.data reads ahead
    assert [int(number[0]) for number in dataset] == list(range(1, 1001))
    assert ended[1:] == [999]


@pytest.mark.fault
def test_other_rows_restart_the_epoch_or_fail(tmp_path: Path) -> None:
    (shard,) = shards_of(tmp_path, split_ids([20]))
    (other,) = shards_of(tmp_path, split_ids([21]))
    feeding = make_dataset(shard, DatasetOptions(batch_size=5))
    next(iter(feeding.dataset))
    position = feeding.position()
    assert position.step == 1
    with pytest.warns(UserWarning, match="Epoch 0 starts again"):
        again = make_dataset(other, DatasetOptions(batch_size=5, start_at=position))
    assert sorted(row for batch in ids_of(again.dataset) for row in batch) == list(range(21))
    with pytest.raises(DataError, match="20 rows with digest"):
        make_dataset(other, DatasetOptions(batch_size=5, start_at=position, strict_resume=True))
    with pytest.raises(ConfigError, match="seed=1"):
        make_dataset(shard, DatasetOptions(batch_size=5, seed=1, start_at=position))


def labelled(tmp_path: Path, rows: int = 12) -> Shard:
    x = pa.array([[float(row), 1.0, 2.0] for row in range(rows)], pa.list_(pa.float32()))
    batch = batch_of(
        list(range(rows)),
        x=x,
        y=pa.array([row % 2 for row in range(rows)], pa.int32()),
        w=pa.array([1.0] * rows, pa.float32()),
        s=pa.array([{"a": row, "b": str(row)} for row in range(rows)]),
    )
    return shards_of(tmp_path, [[batch]])[0]


def spec_of(feeding: TrackedDataset) -> Any:
    return tf.nest.map_structure(
        lambda spec: (spec.shape.as_list(), spec.dtype.name), feeding.dataset.element_spec
    )


def test_features_label_and_weight_make_tuples(tmp_path: Path) -> None:
    shard = labelled(tmp_path)
    both = make_dataset(shard, DatasetOptions(batch_size=4, features="x", label="y"))
    assert spec_of(both) == (([None, 3], "float32"), ([None], "int32"))
    named = make_dataset(
        shard, DatasetOptions(batch_size=4, features=["x", "s"], label="y", weight="w", shuffle=False)
    )
    features, label, weight = next(iter(named.dataset))
    assert set(features) == {"x", "s.a", "s.b"}
    assert features["s.b"].numpy().tolist() == [b"0", b"1", b"2", b"3"]
    assert (label.shape, weight.shape) == ((4,), (4,))
    renamed = make_dataset(shard, DatasetOptions(batch_size=4, features={"in": "x"}, label="y"))
    assert set(renamed.dataset.element_spec[0]) == {"in"}
    alone = make_dataset(shard, DatasetOptions(batch_size=4, features="x"))
    assert spec_of(alone) == ([None, 3], "float32")
    with pytest.raises(ConfigError, match=r"there are: id, x, y, w, s\.a, s\.b"):
        make_dataset(shard, DatasetOptions(batch_size=4, columns=["z"]))


def test_lists_become_dense_or_ragged_for_all_ranks_alike(tmp_path: Path) -> None:
    even = pa.array([[[1, 2]], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int64())))
    odd = pa.array([[[7, 8]], []], pa.list_(pa.list_(pa.int64())))
    texts = [pa.array([["a"], ["b", "c"]]), pa.array([["d"], ["e"]])]
    parts = [[batch_of([0, 1], m=even, t=texts[0])], [batch_of([2, 3], m=odd, t=texts[1])]]
    first, second = (
        make_dataset(shard, DatasetOptions(batch_size=2, shuffle=False)).dataset
        for shard in shards_of(tmp_path, parts)
    )
    assert first.element_spec == second.element_spec
    assert first.element_spec["m"] == tf.RaggedTensorSpec([None, None, 2], tf.int64, 1, tf.int64)
    assert next(iter(first))["m"].to_list() == even.to_pylist()
    assert next(iter(second))["m"].to_list() == odd.to_pylist()
    assert next(iter(first))["t"].to_list() == [[b"a"], [b"b", b"c"]]


def test_an_empty_shard_has_the_same_spec_and_empty_batches(tmp_path: Path) -> None:
    x = pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32()))
    ragged = pa.array([[1], [], [2, 3]], pa.list_(pa.int64()))
    parts: list[list[Any]] = [[batch_of([0, 1, 2], x=x, r=ragged, s=pa.array(["a", "b", "c"]))], []]
    full, empty = (
        make_dataset(shard, DatasetOptions(batch_size=2)).dataset for shard in shards_of(tmp_path, parts)
    )
    assert full.element_spec == empty.element_spec
    batches = list(empty)
    assert [batch["x"].shape.as_list() for batch in batches] == [[0, 2], [0, 2]]
    assert [batch["r"].nrows().numpy() for batch in batches] == [0, 0]


def fit(feeding: TrackedDataset, **options: Any) -> list[tuple[int, int]]:
    """Train a tiny model; return the position after every step."""
    import keras

    places: list[tuple[int, int]] = []

    def note(batch: int, logs: Any) -> None:
        position = feeding.position()
        places.append((position.epoch, position.step))

    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=note)
    model.fit(feeding.dataset, verbose=0, shuffle=False, callbacks=[callback], **options)
    return places


def test_fit_takes_whole_epochs_and_the_position_follows(tmp_path: Path) -> None:
    options = DatasetOptions(batch_size=4, features="x", label="y")
    feeding = make_dataset(labelled(tmp_path), options)
    assert fit(feeding, epochs=2) == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras, of the first, shorter epoch
@pytest.mark.parametrize("mapped", [False, True])
def test_fit_goes_on_in_the_middle_of_an_epoch(tmp_path: Path, mapped: bool) -> None:
    shard = labelled(tmp_path)
    options = DatasetOptions(batch_size=4, features="x", label="y")
    start = make_dataset(shard, options).position(steps=2)
    feeding = make_dataset(shard, replace(options, start_at=start))
    if mapped:
        feeding = replace(feeding, dataset=feeding.dataset.map(lambda x, y: (2 * x, y)))
    assert fit(feeding, epochs=3) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0)]


def token_shards(folder: Path) -> list[Shard]:
    """Two ranks with arrays of any length; the longest row is on the second."""
    kind = pa.list_(pa.int32())
    nested = pa.list_(pa.list_(pa.float32(), 2))
    parts = [
        batch_of([0, 1], x=pa.array([[1], [2, 3]], kind), pairs=pa.array([[[1, 2]], []], nested)),
        batch_of([2], x=pa.array([[4, 5, 6]], kind), pairs=pa.array([[[3, 4], [5, 6]]], nested)),
    ]
    return shards_of(folder, [[part] for part in parts])


def padded(shard: Shard, **options: Any) -> Any:
    pad = PadOptions(**options)
    return make_dataset(shard, DatasetOptions(batch_size=2, shuffle=False, pad=pad)).dataset


def test_arrays_are_padded_to_the_longest_row_of_all_ranks(tmp_path: Path) -> None:
    first, second = (
        padded(shard, pad_to={"x": "longest", "pairs": "longest"}, pad_value={"pairs": -1})
        for shard in token_shards(tmp_path)
    )
    for dataset in (first, second):
        assert dataset.element_spec["x"].shape.as_list() == [None, 3]
        assert dataset.element_spec["pairs"].shape.as_list() == [None, 2, 2]
    (batch,) = first
    assert batch["x"].numpy().tolist() == [[1, 0, 0], [2, 3, 0]]
    assert batch["pairs"].numpy().tolist() == [[[1, 2], [-1, -1]], [[-1, -1], [-1, -1]]]
    (batch,) = second
    assert batch["x"].numpy().tolist() == [[4, 5, 6]]


def test_arrays_are_padded_to_a_length_or_to_their_batch_or_stay_ragged(tmp_path: Path) -> None:
    first, second = token_shards(tmp_path)
    (batch,) = padded(first, pad_to={"x": 5}, pad_value={"x": 9})
    assert batch["x"].numpy().tolist() == [[1, 9, 9, 9, 9], [2, 3, 9, 9, 9]]
    by_batch = padded(first, pad_to={"x": "batch"})
    assert by_batch.element_spec["x"].shape.as_list() == [None, None]
    assert [each["x"].numpy().tolist() for each in by_batch] == [[[1, 0], [2, 3]]]
    assert [each["x"].to_list() for each in padded(second)] == [[[4, 5, 6]]]
    with pytest.raises(
        DataError, match=r"at most 2 values in each row.*a row of 3 values at rank 1"
    ) as caught:
        padded(first, pad_to={"x": 2})
    assert 'F.slice("x", 1, 2)' in caught.value.fix


def test_text_is_padded_with_empty_text_and_a_short_rank_has_empty_batches(tmp_path: Path) -> None:
    words = pa.list_(pa.string())
    parts = [
        [batch_of([0, 1, 2], w=pa.array([["a"], ["b", "c"], []], words))],
        [batch_of([3], w=pa.array([["d"]], words))],
    ]
    long, short = (padded(shard, pad_to={"w": "longest"}) for shard in shards_of(tmp_path, parts))
    assert next(iter(long))["w"].numpy().tolist()[0] == [b"a", b""]
    assert {tuple(each["w"].shape[1:]) for each in short} == {(2,)}
    assert sum(len(each["w"]) for each in short) == 1
