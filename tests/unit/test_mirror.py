"""Remote folders on a node's disk: fetched, uploaded whole and beside the training, complete at the end."""

import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberflow import storage
from emberflow._node.followed_logs import LogFollower, follow_logs
from emberflow._node.mirror import Mirror
from emberflow._node.uploads import MOST_WAITING, UNFINISHED, put_file
from emberflow._plan import deadlines
from emberflow.errors import ConfigError, StorageError
from tests.unit.gated_store import WITHIN, GatedStore, gated_store

URL = "gated://runs/one"
EVENTS = "events.out.tfevents.17.host"
numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[GatedStore]]:
    monkeypatch.setattr(deadlines, "UPLOAD_RETRY_PAUSE", 0.001)
    with gated_store() as made:
        yield made


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path / "mirror")


def write(path: Path, text: str) -> None:
    """Write a file with a time of its own: a test may write it twice within one tick of the clock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(next(numbers), next(numbers)))


def read(name: str) -> str | None:
    url = storage.join(URL, name)
    return storage.read_bytes(url).decode() if storage.exists(url) else None


def test_what_is_there_is_fetched_and_only_what_changes_is_uploaded(
    mirror: Mirror, store: type[GatedStore]
) -> None:
    storage.write_bytes(f"{URL}/sub/old", b"old")
    folder = mirror.folder(URL, fetch=True)
    assert (folder / "sub" / "old").read_text() == "old"
    write(folder / "new", "new")
    mirror.finish()
    mirror.finish()
    assert store.uploaded == [("/runs/one/new", b"new")]
    write(folder / "new", "newer")
    mirror.finish()
    assert read("new") == "newer"
    assert mirror.folder(URL, fetch=True) == folder


def test_nothing_is_fetched_where_nobody_reads(mirror: Mirror) -> None:
    storage.write_bytes(f"{URL}/old", b"old")
    assert not any(mirror.folder(URL, fetch=False).iterdir())
    mirror.finish()
    assert read("old") == "old"


def test_a_file_that_is_written_again_during_its_upload_arrives_whole_and_the_newest_wins(
    mirror: Mirror, store: type[GatedStore]
) -> None:
    folder = mirror.folder(URL, fetch=False)
    store.gate.clear()
    write(folder / "best.keras", "first")
    mirror.sync()  # returns although the upload waits: training goes on
    assert store.begun.acquire(timeout=WITHIN)
    for text in ("second", "third", "fourth"):
        write(folder / "best.keras", text)
        mirror.sync()
    store.gate.set()
    mirror.finish()
    assert [content for _, content in store.uploaded] == [b"first", b"fourth"]
    assert not any((folder.parents[2] / ".staged").iterdir())


def test_training_waits_when_the_storage_cannot_keep_up(mirror: Mirror, store: type[GatedStore]) -> None:
    folder = mirror.folder(URL, fetch=False)
    store.gate.clear()
    for number in range(MOST_WAITING + 1):
        write(folder / f"{number}.keras", "x")
        mirror.sync()
        if number == 0:
            assert store.begun.acquire(timeout=WITHIN)
    write(folder / "last.keras", "x")
    training = threading.Thread(target=mirror.sync)
    training.start()
    training.join(0.2)
    assert training.is_alive()
    store.gate.set()
    training.join(WITHIN)
    mirror.finish()
    assert len(store.uploaded) == MOST_WAITING + 2


def test_an_upload_that_does_not_end_is_an_error_that_names_it(
    mirror: Mirror, store: type[GatedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "UPLOAD_TIMEOUT", 0.05)
    store.gate.clear()
    write(mirror.folder(URL, fetch=False) / "best.keras", "x")
    with pytest.raises(StorageError, match=r"runs/one/best\.keras"):
        mirror.finish()
    monkeypatch.setattr(deadlines, "UPLOAD_TIMEOUT", WITHIN)
    store.gate.set()
    mirror.finish()


def test_what_names_other_files_is_uploaded_after_them(mirror: Mirror, store: type[GatedStore]) -> None:
    folder = mirror.folder(URL, fetch=False)
    for name in ("z.data", "y.index", "checkpoint"):  # as TensorFlow writes them
        write(folder / name, name)
    mirror.finish()
    assert [path.rpartition("/")[2] for path, _ in store.uploaded] == ["z.data", "y.index", "checkpoint"]


def test_what_is_deleted_here_is_deleted_there_and_nothing_else(mirror: Mirror) -> None:
    storage.write_bytes(f"{URL}/other", b"of another program")
    folder = mirror.folder(URL, fetch=False)
    write(folder / "old", "x")
    mirror.finish()
    (folder / "old").unlink()
    mirror.finish()
    assert read("old") is None
    assert read("other") == "of another program"


def test_a_failed_upload_is_an_error_in_training_with_path_and_remedy(
    mirror: Mirror, store: type[GatedStore]
) -> None:
    store.failing.add("best")
    folder = mirror.folder(URL, fetch=False)
    write(folder / "best.keras", "x")
    with pytest.raises(StorageError, match=r"runs/one/best\.keras") as caught:
        mirror.finish()
    assert caught.value.fix
    write(folder / "best.keras", "y")
    mirror.sync()
    with pytest.raises(StorageError, match=r"best\.keras"):
        mirror.finish()


def test_an_upload_that_failed_for_a_reason_that_may_pass_is_tried_again(
    mirror: Mirror, store: type[GatedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "UPLOAD_RETRY_PAUSE", 0.1)
    store.failing.add("best")
    monkeypatch.setattr(store, "error", ConnectionResetError)
    write(mirror.folder(URL, fetch=False) / "best.keras", "x")
    mirror.sync()
    assert store.begun.acquire(timeout=WITHIN)
    assert store.begun.acquire(timeout=WITHIN)  # it has failed once
    store.failing.clear()
    mirror.finish()
    assert read("best.keras") == "x"


@pytest.mark.parametrize(("error", "tries"), [(PermissionError, 1), (ConnectionResetError, 4)])
def test_an_upload_is_given_up_at_once_or_after_some_time(
    mirror: Mirror,
    store: type[GatedStore],
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    tries: int,
) -> None:
    monkeypatch.setattr(deadlines, "UPLOAD_RETRY_PAUSE", 0.1)
    monkeypatch.setattr(
        deadlines, "UPLOAD_RETRY_TIMEOUT", 3.0
    )  # pauses of 0.1, 0.4 and 1.6 s; 6.4 is too long
    monkeypatch.setattr(store, "error", error)
    store.failing.add("best")
    write(mirror.folder(URL, fetch=False) / "best.keras", "x")
    with pytest.raises(StorageError):
        mirror.finish()
    assert [store.begun.acquire(blocking=False) for _ in range(tries + 1)] == [True] * tries + [False]


def test_an_event_file_that_cannot_be_uploaded_is_a_warning(
    mirror: Mirror, store: type[GatedStore], capsys: pytest.CaptureFixture[str]
) -> None:
    store.failing.add("tfevents")
    folder = mirror.folder(URL, fetch=False)
    for text in ("one", "one two"):
        write(folder / "train" / EVENTS, text)
        mirror.finish()
    said = capsys.readouterr().err
    assert said.count("The event file was not uploaded, and the training goes on") == 1
    assert f"runs/one/train/{EVENTS}" in said
    store.failing.clear()
    write(folder / "train" / EVENTS, "one two three")
    mirror.finish()
    assert read(f"train/{EVENTS}") == "one two three"


def test_everything_is_uploaded_at_the_end_also_after_a_failure(tmp_path: Path) -> None:
    def run() -> None:
        with Mirror(tmp_path / "mirror") as mirror:
            write(mirror.folder(URL, fetch=False) / "log.csv", "epoch")
            raise ValueError("told to")

    with pytest.raises(ValueError, match="told to"):
        run()
    assert read("log.csv") == "epoch"


def test_an_upload_that_fails_after_a_failure_does_not_hide_it(
    tmp_path: Path, store: type[GatedStore], capsys: pytest.CaptureFixture[str]
) -> None:
    store.failing.add("log")

    def run() -> None:
        with Mirror(tmp_path / "mirror") as mirror:
            write(mirror.folder(URL, fetch=False) / "log.csv", "epoch")
            raise ValueError("told to")

    with pytest.raises(ValueError, match="told to"):
        run()
    assert "Not everything was uploaded before this node ended" in capsys.readouterr().err


def test_a_checkpoint_that_was_interrupted_is_not_uploaded(mirror: Mirror) -> None:
    folder = mirror.folder(URL, fetch=False)
    own = mirror.folder("gated://runs/own", fetch=False, scan=True)
    write(folder / "best.keras", "whole")
    mirror.finish()
    write(folder / "best.keras", "ha")
    write(folder / "log.csv", "epoch")
    write(own / "mine.keras", "whole")
    mirror.disregard_unfinished()
    mirror.finish()
    assert (read("best.keras"), read("log.csv")) == ("whole", "epoch")
    assert storage.exists("gated://runs/own/mine.keras")


def test_files_of_other_writers_are_uploaded_once_they_rest(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "MIRROR_SCAN_INTERVAL", 0.02)
    with mirror:
        folder = mirror.folder(URL, fetch=True, scan=True)
        write(folder / "state", "resting")
        write(folder / "changing", "0")
        deadline = time.monotonic() + WITHIN
        changes = 0
        while read("state") is None:
            write(folder / "changing", str(changes := changes + 1))
            assert time.monotonic() < deadline
        assert read("state") == "resting"
    assert read("changing") == str(changes)


def test_a_folder_of_versions_is_stored_whole_and_found_by_the_next_node(tmp_path: Path) -> None:
    first, second = Mirror(tmp_path / "a"), Mirror(tmp_path / "b")
    folder = first.versions(URL)
    assert not folder.exists()  # Keras makes it
    for epoch in ("1", "2"):
        write(folder / "weights", epoch)
        write(folder / "epoch", epoch)
        first.finish()
    again = second.versions(URL)
    assert [(again / name).read_text() for name in ("weights", "epoch")] == ["2", "2"]
    assert [path.rpartition("/")[2] for path in storage.list_folder(URL)] == ["step-000000002"]
    for path in again.iterdir():
        path.unlink()
    again.rmdir()
    second.finish()
    assert not Mirror(tmp_path / "c").versions(URL).exists()


def test_a_folder_of_versions_is_uploaded_after_all_else(mirror: Mirror, store: type[GatedStore]) -> None:
    state = mirror.versions(URL)
    folder = mirror.folder("gated://runs/own", fetch=False)
    write(state / "epoch", "1")
    mirror.sync(versions=False)
    write(folder / "01.keras", "x")
    mirror.finish()
    assert store.uploaded[0] == ("/runs/own/01.keras", b"x")
    assert len(store.uploaded) > 1


def test_a_node_killed_during_an_upload_leaves_the_state_before_it(
    tmp_path: Path, store: type[GatedStore]
) -> None:
    first = Mirror(tmp_path / "a")
    folder = first.versions(URL)
    write(folder / "weights", "1")
    write(folder / "epoch", "1")
    first.finish()
    store.failing.add("epoch")  # the second of the two files
    write(folder / "weights", "2")
    write(folder / "epoch", "2")
    with pytest.raises(StorageError):
        first.finish()
    again = Mirror(tmp_path / "b").versions(URL)
    assert [(again / name).read_text() for name in ("weights", "epoch")] == ["1", "1"]


def test_where_files_are_renamed_the_rest_of_a_killed_upload_is_overwritten(tmp_path: Path) -> None:
    rest = tmp_path / "there" / f".log.csv{UNFINISHED}"
    write(rest, "half of an older file that is longer")
    write(tmp_path / "here", "whole")
    put_file(tmp_path / "here", f"file:{tmp_path}/there/log.csv")
    assert (tmp_path / "there" / "log.csv").read_text() == "whole"
    assert not rest.exists()


def test_a_local_folder_is_itself(mirror: Mirror, tmp_path: Path) -> None:
    for path in (str(tmp_path / "logs"), f"file:{tmp_path}/logs", f"file://{tmp_path}/logs"):
        assert mirror.folder(path, fetch=True, scan=True) == tmp_path / "logs"
    assert (tmp_path / "logs").is_dir()


@pytest.mark.parametrize("url", ["gated://runs/../other", "gated://"])
def test_a_path_outside_is_refused(mirror: Mirror, url: str) -> None:
    with pytest.raises(ConfigError, match="below its host"):
        mirror.path_of(url)


def test_a_file_is_no_folder(mirror: Mirror) -> None:
    storage.write_bytes(URL, b"a file")
    with pytest.raises(StorageError, match="which is a file"):
        mirror.folder(URL, fetch=True)


def test_followed_event_files_grow_by_what_is_new(mirror: Mirror) -> None:
    storage.write_bytes(f"{URL}/eval/{EVENTS}", b"12345")
    storage.write_bytes(f"{URL}/model.keras", b"not for TensorBoard")
    local = mirror.path_of(URL)
    follower = LogFollower(URL, mirror)
    assert follower.update() == 5
    storage.write_bytes(f"{URL}/eval/{EVENTS}", b"1234567")
    assert follower.update() == 2
    assert (local / "eval" / EVENTS).read_text() == "1234567"
    assert follower.update() == 0
    assert not (local / "model.keras").exists()


def test_followed_files_are_not_uploaded_and_own_ones_not_downloaded(
    mirror: Mirror, store: type[GatedStore]
) -> None:
    storage.write_bytes(f"{URL}/eval/{EVENTS}", b"theirs")
    folder = mirror.folder(URL, fetch=False)
    write(folder / "train" / EVENTS, "ours")
    follower = LogFollower(URL, mirror)
    assert follower.update() == 6
    mirror.finish()
    write(folder / "train" / EVENTS, "ours, grown")
    assert follower.update() == 0
    mirror.finish()
    assert [path for path, _ in store.uploaded] == [f"/runs/one/train/{EVENTS}"] * 2
    assert (folder / "train" / EVENTS).read_text() == "ours, grown"


def test_followed_files_are_bounded(mirror: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        storage.write_bytes(f"{URL}/{number}/{EVENTS}", b"x" * (1 << 20))
    follower = LogFollower(URL, mirror, most_bytes=2 << 20)
    assert follower.update() == 2 << 20
    assert follower.update() == 0
    assert capsys.readouterr().err.count("TensorBoard shows the newest 2 MB") == 1


def test_a_local_folder_needs_no_copy(mirror: Mirror, tmp_path: Path) -> None:
    assert follow_logs(f"file:{tmp_path}/logs", mirror) == f"{tmp_path}/logs"
    assert follow_logs(str(tmp_path), mirror) == str(tmp_path)
