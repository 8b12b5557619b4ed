"""Two and three ranks give the numbers of one process, to the bit on all ranks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.tensorflow.parallel_crew import RANKS, Crew
from tests.tensorflow.parallel_numbers import LOCAL, LONG, QUICK, THREE, TOLERANCE, TWO, differences


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


def check_equal(crew: Crew, case: str, transport: str) -> None:
    """All ranks have the same bits, and the numbers of one process."""
    ranks = train(crew, case, transport)
    assert len({str(rank["bits"]) for rank in ranks}) == 1
    for rank in ranks:
        assert differences(rank, one(crew, case), TOLERANCE.get(case, 1e-5)) == {}


def with_all(cases: list[str]) -> list[Any]:
    """Some cases in each run of the tests, the others in the full one."""
    return [pytest.param(case, marks=() if case in QUICK else pytest.mark.full) for case in cases]


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.full if case in LONG else ()) for case in TWO]
)
def test_two_ranks_equal_one_process(crew: Crew, case: str) -> None:
    check_equal(crew, case, "ring2")


@pytest.mark.parametrize("case", with_all(TWO))
def test_two_ranks_equal_one_process_with_collectives(crew: Crew, case: str) -> None:
    check_equal(crew, case, "collectives")


@pytest.mark.parametrize("case", THREE)
def test_three_ranks_equal_one_process(crew: Crew, case: str) -> None:
    check_equal(crew, case, "ring3")


@pytest.mark.parametrize("case", with_all(TWO))
def test_the_comparison_fails_when_the_reduction_is_off(crew: Crew, case: str) -> None:
    ranks = train(crew, case, "off")
    far = differences(ranks[0], one(crew, case), TOLERANCE.get(case, 1e-5))
    assert any(name.startswith("weight") for name in far), far
    assert any(name.startswith(("epochs", "steps")) for name in far), far


@pytest.mark.parametrize(
    ("case", "transport"),
    [
        *((case, "ring2") for case in LOCAL),
        ("batchnorm", "collectives"),
        *(pytest.param(case, "collectives", marks=pytest.mark.full) for case in LOCAL if case != "batchnorm"),
        ("three_batchnorm", "ring3"),
    ],
)
def test_ranks_end_equal_where_batches_have_their_own_statistics(
    crew: Crew, case: str, transport: str
) -> None:
    ranks = train(crew, case, transport)
    assert len({str(rank["bits"]) for rank in ranks}) == 1
    for rank in ranks:
        assert not any(np.isnan(values).any() for name, values in rank.items() if name != "bits")
    if "seeds" in ranks[0]:
        assert (ranks[0]["seeds"] != ranks[1]["seeds"]).any()


def scene(crew: Crew, name: str, transport: str) -> list[Any]:
    folder = crew.folder / f"{name}-{transport}"
    folder.mkdir(exist_ok=True)
    return crew.ask(RANKS[transport], do="scene", name=name, transport=transport, folder=str(folder))


BOTH = pytest.mark.parametrize("transport", ["ring2", "collectives"])
RING_FIRST = pytest.mark.parametrize(
    "transport", ["ring2", pytest.param("collectives", marks=pytest.mark.full)]
)


@RING_FIRST
def test_saved_exported_and_cloned_models_are_plain_keras(crew: Crew, transport: str) -> None:
    for rank, seen in enumerate(scene(crew, "saved_files_are_plain_keras", transport)):
        assert seen == {"loaded": True, "iterations": 4, "hooked": [], "served": True, "predicted": rank + 1}


@BOTH
def test_all_ranks_stop_one_step_after_one_wanted_to(crew: Crew, transport: str) -> None:
    first, second = scene(crew, "one_rank_stops_at_a_step", transport)
    assert first == second
    assert first[:2] == [7, 2]


@RING_FIRST
def test_all_ranks_stop_at_the_epoch_in_which_one_wanted_to(crew: Crew, transport: str) -> None:
    for name in ("one_rank_stops_at_an_epoch", "one_rank_stops_at_the_last_step_of_an_epoch"):
        first, second = scene(crew, name, transport)
        assert first == second
        assert first[:2] == [4, 1]


@RING_FIRST
def test_a_model_may_be_compiled_after_and_again(crew: Crew, transport: str) -> None:
    first, second = scene(crew, "compiled_after_distribute", transport)
    assert first == second


@RING_FIRST
def test_the_chief_backs_up_and_all_ranks_resume(crew: Crew, transport: str) -> None:
    first, second = scene(crew, "backup_is_restored_by_all", transport)
    assert first["epochs"] == second["epochs"] == [2, 3]
    assert first["iterations"] == second["iterations"] == 16
    assert first["bits"] == second["bits"]
    assert first["distance"] <= 1e-6
    assert (first["has_files"], second["has_files"]) == (True, False)


def test_only_the_chief_writes_checkpoints(crew: Crew) -> None:
    train(crew, "validation", "ring2")
    assert [path.name for path in (crew.folder / "validation-ring2").glob("*.keras")] == ["best-0.keras"]


def test_callbacks_with_remote_paths_are_resumed_on_an_empty_disk(crew: Crew) -> None:
    first, second = scene(crew, "remote_callbacks_are_resumed", "ring2")
    assert first["epochs"] == second["epochs"] == [2, 3]
    checkpoints = [f"/all/{epoch:02d}.weights.h5" for epoch in range(1, 5)]
    written = ["/best.keras", "/log.csv", "/logs/train/events"]
    assert any(name.startswith("/backup/step-000000002/") for name in first["interrupted"])
    assert [name for name in first["interrupted"] if "backup" not in name] == [*checkpoints[:2], *written]
    assert first["finished"] == [*checkpoints, *written, "/logs/train/events"]
    assert [line.partition(",")[0] for line in first["csv"]] == ["epoch", "0", "1", "2", "3"]
    assert first["best"] is True
    assert second["interrupted"] == second["finished"] == []  # only the chief writes


def test_a_path_below_a_file_is_refused_before_the_training(crew: Crew) -> None:
    (said,) = set(scene(crew, "a_path_below_a_file_is_refused", "ring2"))
    assert said.startswith("StorageError: Expected a folder. Received: path='memory://runs/remote/taken'")


def test_models_that_cannot_be_exact_are_refused(crew: Crew) -> None:
    for weights, stateful, plain in scene(crew, "inexact_models_are_refused", "ring2"):
        assert weights.startswith("ModelError: A loss must be the mean or the sum over rows")
        assert "Received: reduction='mean_with_sample_weight'" in weights
        assert stateful.startswith("ModelError: A stateful RNN needs one fixed batch size")
        assert plain == "accepted"


def test_losses_and_metrics_that_are_neither_means_nor_sums_are_refused(crew: Crew) -> None:
    first, second = scene(crew, "inexact_terms_are_refused", "ring2")
    assert first == second
    loss, metric, accepted, in_training = first
    assert loss.startswith("ModelError: Losses and the state of metrics must be means or sums over rows")
    assert "neither, for model.losses[0] (of add_loss or a regularizer)" in loss
    assert "exact=False" in loss
    assert "neither, for metric 'largest'" in metric
    assert not accepted.startswith("ModelError")
    assert "1 losses in training, 0 in inference" in in_training


def test_the_probe_leaves_no_trace(crew: Crew) -> None:
    assert scene(crew, "probe_leaves_nothing", "ring2") == [[], []]


def test_only_a_sum_costs_one_more_exchange(crew: Crew) -> None:
    assert scene(crew, "exchanges_of_a_step", "ring2") == [[2, 3], [2, 3]]


def test_rounded_gradients_are_close_and_equal_on_all_ranks(crew: Crew) -> None:
    first, second = scene(crew, "rounded_gradients", "ring2")
    assert first == second
    assert 0 < first["distance"] < 2e-3


def test_collectives_do_not_round(crew: Crew) -> None:
    for text in scene(crew, "rounding_is_refused", "collectives"):
        assert "`wire_dtype` must be \"float32\". Received: wire_dtype='bfloat16'" in text


def test_another_model_on_a_rank_is_refused_by_all(crew: Crew) -> None:
    for text in scene(crew, "other_models_are_refused", "ring2"):
        assert "another model on ranks=[1]" in text


@BOTH
def test_own_loops_and_single_batches_are_reduced_too(crew: Crew, transport: str) -> None:
    first, second = scene(crew, "trained_by_hand", transport)
    assert first == second


def test_keras_keeps_the_promises_that_the_hooks_rely_on(crew: Crew) -> None:
    assert crew.ask(1, do="broken_promises")[0] == []
