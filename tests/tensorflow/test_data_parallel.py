"""Two and three ranks give the numbers of one process, to the bit on all ranks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tensorflow.parallel_crew import RANKS, Crew

TWO = [
    "sgd", "classes", "even", "heads", "heads_empty", "clipnorm_schedule", "global_clipnorm", "ema", "accumulate",
    "decay", "sample_weight", "class_weight", "validation", "own_step", "bare_numbers", "two_optimizers",
    "embedding_sgd", "embedding_adam", "embedding_clip", "several_steps", "half", "brain", "eager", "empty",
    "regularized", "unbuilt", "jit",
]  # fmt: skip
THREE = ["three", "three_heads", "three_embedding"]
LOCAL = ["batchnorm", "batchnorm_empty", "dropout"]
TOLERANCE = {"half": 2e-3, "brain": 1e-2}


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    crew = Crew(tmp_path_factory.mktemp("ranks"))
    yield crew
    crew.close()


def train(crew: Crew, case: str, transport: str) -> list[dict[str, Any]]:
    """Train on all ranks; return each rank's numbers."""
    ranks = 1 if transport == "one" else RANKS[transport]
    folder = crew.folder / f"{case}-{transport}"
    folder.mkdir(exist_ok=True)
    crew.ask(ranks, do="train", case=case, transport=transport, folder=str(folder))
    return [dict(np.load(folder / f"{case}-{transport}-{rank}.npz")) for rank in range(ranks)]


def one(crew: Crew, case: str, known: dict[str, dict[str, Any]] = {}) -> dict[str, Any]:  # noqa: B006
    """The numbers of one process, trained once."""
    if case not in known:
        known[case] = train(crew, case, "one")[0]
    return known[case]


def differences(got: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> dict[str, float]:
    """Name each number that is not the same; NaN is never the same."""
    assert got.keys() == wanted.keys()
    numbers = [name for name in wanted if name not in ("bits", "seeds")]
    far = {name: worst(got[name], wanted[name]) for name in numbers}
    return {name: distance for name, distance in far.items() if not distance <= tolerance}


def worst(got: Any, wanted: Any) -> float:
    if got.shape != wanted.shape:
        return float("inf")
    distance = np.abs(got.astype(np.float64) - wanted.astype(np.float64)) / np.maximum(1, np.abs(wanted))
    return float("nan") if np.isnan(distance).any() else float(distance.max(initial=0))


@pytest.mark.parametrize("transport", ["ring2", "collectives"])
@pytest.mark.parametrize("case", TWO)
def test_two_ranks_equal_one_process(crew: Crew, case: str, transport: str) -> None:
    ranks = train(crew, case, transport)
    assert len({str(rank["bits"]) for rank in ranks}) == 1
    for rank in ranks:
        assert differences(rank, one(crew, case), TOLERANCE.get(case, 1e-5)) == {}


@pytest.mark.parametrize("case", THREE)
def test_three_ranks_equal_one_process(crew: Crew, case: str) -> None:
    ranks = train(crew, case, "ring3")
    assert len({str(rank["bits"]) for rank in ranks}) == 1
    for rank in ranks:
        assert differences(rank, one(crew, case), 1e-5) == {}


@pytest.mark.parametrize("case", TWO)
def test_the_comparison_fails_when_the_reduction_is_off(crew: Crew, case: str) -> None:
    ranks = train(crew, case, "off")
    far = differences(ranks[0], one(crew, case), TOLERANCE.get(case, 1e-5))
    assert any(name.startswith("weight") for name in far), far
    assert any(name.startswith(("epochs", "steps")) for name in far), far


@pytest.mark.parametrize(
    ("case", "transport"),
    [*((case, kind) for case in LOCAL for kind in ("ring2", "collectives")), ("three_batchnorm", "ring3")],
)
def test_ranks_end_equal_where_batches_have_their_own_statistics(crew: Crew, case: str, transport: str) -> None:
    ranks = train(crew, case, transport)
    assert len({str(rank["bits"]) for rank in ranks}) == 1
    for rank in ranks:
        assert not any(np.isnan(values).any() for name, values in rank.items() if name != "bits")
    if "seeds" in ranks[0]:
        assert (ranks[0]["seeds"] != ranks[1]["seeds"]).any()
