"""A thousand nodes join one driver: in seconds, and the one that fails is named."""

import pytest
from benchmarks.thousand_nodes import run_nodes

from emberflow.errors import NodeFailedError

pytestmark = pytest.mark.alone  # they keep every core busy, and the time is the claim


def test_a_thousand_nodes_join_exchange_and_leave() -> None:
    figures = run_nodes(1000)
    print(figures)
    assert figures["seconds"] < 30


def test_what_a_thousand_nodes_with_a_thousand_columns_send_stays_small() -> None:
    """Addresses and counts of all, but one schema: else each would be told a thousand schemas, 136 MB."""
    figures = run_nodes(1000, columns=1000)
    print(figures)
    assert figures["sent_bytes"] < 40_000
    assert figures["received_bytes"] < 300_000


def test_one_failure_among_a_thousand_is_named() -> None:
    with pytest.raises(NodeFailedError) as caught:
        run_nodes(1000, failing=617)
    assert (caught.value.rank, caught.value.host) == (617, "host-617")
    assert "ValueError: nan loss" in str(caught.value)
