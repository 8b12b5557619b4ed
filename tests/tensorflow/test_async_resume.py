"""Places among rows in checkpoints of asynchronous training: kept for the same rows, refused or left for others."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emberflow._feed.position import Contents
from emberflow.errors import DataError

THEN = Contents(rows=100, digest="aa")
PLACES = {"0": {"epoch": 3, "step": 4}, "1": {"epoch": 2, "step": 9}}
START_OF_EPOCH = {"epoch": 3, "step": 0}


def saved(folder: Path, now: Contents, *, attempt: int = 0, workers: int = 2) -> Any:
    """Return what rank 1 makes of a checkpoint of two workers when it holds these rows."""
    from emberflow.ml.asynchronous import SavedProgress

    state = {
        "epoch": 3,
        "history": {},
        "places": PLACES,
        "workers": 2,
        "contents": {"rows": THEN.rows, "digest": THEN.digest},
    }
    (folder / "state.json").write_text(json.dumps(state))
    ctx: Any = SimpleNamespace(
        checkpoint_dir=str(folder),
        latest_checkpoint=lambda: folder,
        workers=workers,
        rank=1,
        attempt=attempt,
        _contents=lambda: now,
    )
    return SavedProgress(ctx)


def test_the_same_rows_keep_their_places(tmp_path: Path) -> None:
    assert saved(tmp_path, THEN).place == PLACES["1"]


@pytest.mark.fault
def test_a_later_run_on_other_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="100 rows with digest aa then, 100 rows with bb now"):
        saved(tmp_path, Contents(rows=100, digest="bb"))


def test_a_restart_whose_rows_come_otherwise_begins_the_epoch_again(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Epoch 3 starts again"):
        assert saved(tmp_path, Contents(rows=100, digest="bb"), attempt=1).place == START_OF_EPOCH


def test_other_workers_deal_the_same_number_of_rows_anew(tmp_path: Path) -> None:
    assert saved(tmp_path, Contents(rows=100, digest="cc"), workers=3).place == START_OF_EPOCH
    with pytest.raises(DataError):
        saved(tmp_path, Contents(rows=99, digest="cc"), workers=3)
