"""What ranks agree on when they meet: one schema, one set of facts about columns; differences are named."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow._feed.shard_facts import ShardFacts, add_facts, observe
from emberflow._feed.shards import Nulls, merge_shards
from emberflow._protocol.driver_messages import Cluster, NoCluster
from emberflow._task.startup_exchange import blobs_to_show, cluster_of, startup_facts, without_blobs
from emberflow.errors import DataError


def shard_of(digest: str = "", **columns: Any) -> ShardFacts:
    batch = pa.RecordBatch.from_pydict(columns)
    return ShardFacts(rows=batch.num_rows, digest=digest, schema=batch.schema, columns=observe(batch))


rows = st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=4), min_size=1, max_size=6)


@settings(deadline=None)  # the first call imports parts of pyarrow
@given(parts=st.lists(rows, min_size=1, max_size=5))
def test_merged_facts_are_those_of_all_rows_together(parts: list[Any]) -> None:
    kind = pa.list_(pa.int64())
    shards = [shard_of(x=pa.array(part, kind)) for part in parts]
    merged = merge_shards(shards)
    assert merged.columns == add_facts(shard.columns for shard in shards)
    assert merged.schema == shards[0].schema
    assert [shard.rows for shard in merged.each] == [len(part) for part in parts]
    counts = [(rank, shard.columns["x"]) for rank, shard in enumerate(shards)]
    places = [
        (rank, facts.nulls, facts.inner_nulls) for rank, facts in counts if facts.nulls or facts.inner_nulls
    ]
    expected = {"x": Nulls(ranks=len(places), first=tuple(places))} if places else {}
    assert merged.nulls == expected


def test_a_rank_that_no_batch_came_to_learns_the_schema() -> None:
    full = shard_of("d0", x=[1, 2], y=["a", "b"])
    merged = merge_shards([ShardFacts(), full, ShardFacts()])
    assert merged.schema == full.schema
    assert [(shard.rows, shard.digest) for shard in merged.each] == [(0, ""), (2, "d0"), (0, "")]


def test_metadata_makes_no_difference() -> None:
    one = shard_of(x=[1])
    other = ShardFacts(rows=1, schema=one.schema.with_metadata({"made": "elsewhere"}), columns=one.columns)
    assert merge_shards([one, other]).schema == one.schema


@pytest.mark.fault
@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"x": [1.0], "y": ["b"]}, "'x': int64 and double"),
        ({"x": [1]}, "'y': string and no such column"),
        ({"x": [1], "y": ["b"], "z": [2]}, "'z': no such column and int64"),
        ({"y": ["b"], "x": [1]}, "columns in another order"),
    ],
)
def test_schemas_that_differ_are_told_by_rank_and_column(other: dict[str, Any], said: str) -> None:
    one = shard_of(x=[1], y=["a"])
    with pytest.raises(DataError) as caught:
        merge_shards([ShardFacts(), one, one, shard_of(**other)], "validation")
    assert "data['validation']" in str(caught.value)
    assert said in str(caught.value)
    assert "first at ranks 1, 2, second at rank 3" in str(caught.value)


def test_many_differences_are_counted() -> None:
    one = shard_of(**{f"c{number}": [1] for number in range(20)})
    other = shard_of(**{f"c{number}": [1.0] for number in range(20)})
    with pytest.raises(
        DataError, match=r"'c4': int64 and double and 15 more \(first at ranks 0, 1, 2, 3, 4 and 95 more"
    ):
        merge_shards([one] * 100 + [other])


def test_data_without_rows_is_refused() -> None:
    empty = ShardFacts(schema=pa.schema([("x", pa.int64())]))
    for shards in ([ShardFacts()] * 2, [empty] * 2):
        with pytest.raises(DataError, match=r"at least one row. Received: data\['train'\]"):
            merge_shards(shards)


def test_a_cluster_has_addresses_and_shards_or_the_reason_why_there_is_none() -> None:
    shards = {"train": shard_of(x=[1, 2])}
    facts = [
        startup_facts({"tf": "a:1"}, shards),
        startup_facts({"tf": "b:2"}, shards),
        startup_facts({"tf": "c:3"}, {}),
    ]
    cluster = cluster_of(facts)
    assert isinstance(cluster, Cluster)
    assert cluster.endpoints == [{"tf": "a:1"}, {"tf": "b:2"}, {"tf": "c:3"}]
    assert list(cluster.shards) == ["train"]
    assert cluster_of(facts[2:]) == Cluster([{"tf": "c:3"}])
    other = startup_facts({"tf": "b:2"}, {"train": shard_of(x=[1.0])})
    refused = cluster_of([facts[0], other])
    assert isinstance(refused, NoCluster)
    assert "'x': int64 and double" in refused.problem


def test_where_all_receive_everything_each_blob_is_sent_once() -> None:
    one, other = shard_of(x=[[1, 2]]), shard_of(x=[[1]])  # the same schema, other lengths
    parts = [one, one, other, ShardFacts()]
    facts = [startup_facts({}, {"train": part}) for part in parts]
    briefs = [without_blobs(each) for each in facts]
    shown = [blobs_to_show(rank, briefs, mine) for rank, mine in enumerate(facts)]
    assert [len(each) if each is not None else None for each in shown] == [2, 0, 1, 0]
    assert [blobs_to_show(rank, briefs[:2], mine) for rank, mine in enumerate(facts[:2])] == [None, None]


def test_the_ranks_of_the_shortest_and_longest_rows_are_known_where_ranks_differ() -> None:
    kind = pa.list_(pa.int64())
    same, short, long = (pa.array(rows, kind) for rows in ([[1, 2]], [[1], [1, 2]], [[1, 2, 3]]))
    assert merge_shards([shard_of(x=same), shard_of(x=same)]).spans == {}
    merged = merge_shards([ShardFacts(), shard_of(x=same), shard_of(x=long), shard_of(x=short)])
    assert merged.spans == {"x": (3, 2)}
