"""The model of a stream on a node: restored before the first round, stored by the chief after each."""

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emberflow import storage
from emberflow._node.round_feed import Round
from emberflow._node.round_store import RoundStore
from emberflow._protocol.live_messages import RoundReady
from emberflow.errors import ConfigError


@pytest.fixture(params=["local", "file-url", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kinds = {
        "local": str(tmp_path / "stored"),
        "file-url": f"file:{tmp_path}/stored",
        "memory": f"memory://{uuid.uuid4().hex}",
    }
    return kinds[request.param]


def ready(**fields: Any) -> RoundReady:
    return RoundReady(7, fields.pop("epochs", 1), "token", {}, 0, **fields)


def rounds_of(message: RoundReady, store: RoundStore, rank: int = 0) -> list[Round]:
    feed: Any = SimpleNamespace(names=("train",))
    return [
        Round(message, epoch, feed, store, rank, is_asynchronous=False) for epoch in range(message.epochs)
    ]


def write(folder: Path) -> None:
    (folder / "weights").write_text("w")


def test_what_the_chief_stores_is_what_every_node_restores(folder: str, tmp_path: Path) -> None:
    store = RoundStore(ready(store_to=folder), tmp_path, is_chief=True)
    store.save(write)
    store.close()
    message = ready(resume_from=folder)
    for rank in (0, 1):
        restored = RoundStore(message, tmp_path, is_chief=rank == 0)
        (each,) = rounds_of(message, restored, rank)
        assert each.checkpoint is not None
        assert (each.checkpoint / "weights").read_text() == "w"
        assert each.is_chief == (rank == 0)
        restored.close()
    assert not list(tmp_path.glob("checkpoint-*"))
    assert storage.exists(folder)


def test_other_nodes_than_the_chief_store_nothing(folder: str, tmp_path: Path) -> None:
    store = RoundStore(ready(store_to=folder), tmp_path, is_chief=False)
    store.save(write)
    store.close()
    assert not storage.exists(folder)


def test_of_several_epochs_the_first_restores_and_the_last_stores(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    message = ready(epochs=3, resume_from=str(tmp_path / "before"), store_to=str(tmp_path / "after"))
    store = RoundStore(message, tmp_path, is_chief=True)
    rounds = rounds_of(message, store)
    assert [each.checkpoint is not None for each in rounds] == [True, False, False]
    for number, each in enumerate(rounds):
        assert not (tmp_path / "after").exists()
        each.save_checkpoint(lambda folder, number=number: (folder / "epoch").write_text(str(number)))
    assert (tmp_path / "after" / "epoch").read_text() == "2"


def test_rounds_of_train_have_no_model_of_their_own(tmp_path: Path) -> None:
    store = RoundStore(ready(), tmp_path, is_chief=True)
    (each,) = rounds_of(ready(), store)
    assert each.checkpoint is None
    each.save_checkpoint(write)
    store.close()
    assert not list(tmp_path.iterdir())


def test_a_function_that_forgets_to_restore_or_to_store_is_told_so(folder: str, tmp_path: Path) -> None:
    forgetful = RoundStore(ready(resume_from=folder), tmp_path, is_chief=False)
    with pytest.raises(ConfigError, match=r"round\.checkpoint in round 7"):
        forgetful.close()
    forgetful = RoundStore(ready(store_to=folder), tmp_path, is_chief=True)
    with pytest.raises(ConfigError, match=r"round\.save_checkpoint in round 7"):
        forgetful.close()
    empty = RoundStore(ready(store_to=folder), tmp_path, is_chief=True)
    with pytest.raises(ConfigError, match="must hold something"):
        empty.save(lambda _: None)
