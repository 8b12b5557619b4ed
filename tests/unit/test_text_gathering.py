"""`ctx.all_gather` between ranks: each gets every text, in rank order."""

import pytest

from emberflow._node.text_gathering import gather_texts
from emberflow.errors import ConfigError
from emberflow.strategies.transport.ring import Ring
from tests.unit.test_ring import joined, on_all


def test_every_rank_gets_all_texts_in_rank_order() -> None:
    texts = ["", "häuser", "x" * 70_000]
    with joined(3) as rings:
        assert on_all(rings, lambda ring: gather_texts(ring, texts[ring.rank])) == [texts] * 3
        assert on_all(rings, lambda ring: gather_texts(ring, "")) == [[""] * 3] * 3  # again, as a barrier


def test_one_rank_waits_for_nobody() -> None:
    assert gather_texts(Ring.of_one(), "alone") == ["alone"]


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="passes text"):
        gather_texts(Ring.of_one(), 3)  # type: ignore[arg-type]
