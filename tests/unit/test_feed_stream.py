import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow._feed.feed_progress import Progress
from emberflow._feed.row_windows import group_columns
from emberflow._feed.shards import merge_shards
from emberflow._feed.stream import MostSteps, Stream, StreamWindows, cut_batches, first_facts
from emberflow._feed.tensor_columns import plan_columns
from emberflow.errors import DataError


def batches_of(sizes: list[int], start: int = 0) -> list[Any]:
    made = []
    for size in sizes:
        made.append(pa.RecordBatch.from_pydict({"id": pa.array(range(start, start + size), pa.int64())}))
        start += size
    return made


@settings(deadline=None)  # the first call imports parts of pyarrow
@given(sizes=st.lists(st.integers(0, 20), max_size=8), size=st.integers(1, 25))
def test_batches_are_cut_anew_without_loss(sizes: list[int], size: int) -> None:
    cut = [batch.column("id").to_pylist() for batch in cut_batches(batches_of(sizes), size)]
    assert [row for rows in cut for row in rows] == list(range(sum(sizes)))
    assert all(len(rows) == size for rows in cut[:-1])
    assert all(cut)


def together(ranks: int) -> list[MostSteps]:
    """Return for each rank the way to agree with the others, as threads of one process."""
    said = [0] * ranks
    barrier = threading.Barrier(ranks, timeout=20)

    def most_as(rank: int) -> MostSteps:
        def most(steps: int) -> int:
            said[rank] = steps
            barrier.wait()
            answer = max(said)
            barrier.wait()
            return answer

        return most

    return [most_as(rank) for rank in range(ranks)]


def steps_of(stream: Stream, sizes: list[int]) -> list[list[int]]:
    columns = list(plan_columns(stream.facts).values())
    rows = []
    for wire, bounds, tags in StreamWindows(stream, group_columns(columns), columns, sizes, Progress())():
        assert len(tags) == len(bounds) - 1
        rows += [wire[0][bounds[at] : bounds[at + 1]].tolist() for at in range(len(tags))]
    return rows


@pytest.mark.parametrize("sizes", [[[10, 3], [1]], [[0], [700, 700]], [[], [5]], [[512], [512], [513]]])
def test_all_ranks_take_as_many_steps_as_the_longest(sizes: list[list[int]]) -> None:
    starts = [sum(sum(part) for part in sizes[:rank]) for rank in range(len(sizes))]
    sources = [first_facts(batches_of(part, start)) for part, start in zip(sizes, starts, strict=True)]
    facts = merge_shards(fact for fact, _ in sources)
    most = together(len(sizes))
    streams = [
        Stream(name="train", rank=rank, batches=batches, facts=facts, most_steps=most[rank])
        for rank, (_, batches) in enumerate(sources)
    ]
    with ThreadPoolExecutor(len(sizes)) as pool:
        taken = list(pool.map(lambda stream: steps_of(stream, [4] * len(sizes)), streams))
    assert {len(steps) for steps in taken} == {max(-(-sum(part) // 4) for part in sizes)}
    rows = sorted(row for steps in taken for step in steps for row in step)
    assert rows == list(range(sum(map(sum, sizes))))


def test_a_stream_is_read_once() -> None:
    facts, batches = first_facts(batches_of([3]))
    columns = list(plan_columns(merge_shards([facts])).values())
    windows = StreamWindows(
        Stream(name="train", rank=0, batches=batches, facts=merge_shards([facts])),
        group_columns(columns),
        columns,
        [2],
        Progress(),
    )
    assert len(list(windows())) == 1
    with pytest.raises(DataError, match="a second pass over 'train'"):
        next(windows())


def test_rows_that_do_not_fit_the_first_are_refused() -> None:
    first = pa.RecordBatch.from_pydict({"x": [[1, 2]]})
    facts, batches = first_facts([first, pa.RecordBatch.from_pydict({"x": [[1]]})])
    stream = Stream(name="train", rank=0, batches=batches, facts=merge_shards([facts]))
    with pytest.raises(DataError, match="as the first rows did"):
        steps_of(stream, [1])


def test_first_facts_skips_batches_without_rows() -> None:
    facts, batches = first_facts(batches_of([0, 2, 3]))
    assert (facts.rows, [batch.num_rows for batch in batches]) == (2, [0, 2, 3])
    nothing, batches = first_facts([])
    assert (nothing.schema, list(batches)) == (None, [])
