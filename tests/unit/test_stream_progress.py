"""The record of a stream's training: model and batch count together, and the later driver wins."""

import itertools
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from emberflow import storage
from emberflow._driver.stream_progress import KEPT, StoredBatch, StreamProgress
from emberflow.errors import StorageError, StreamError, SupersededError
from tests.unit.dying_store import DyingStore, KilledError


@pytest.fixture(params=["local", "file-url", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for the progress: on disk, on disk as a URL, and in a store that cannot rename."""
    kinds = {
        "local": str(tmp_path / "progress"),
        "file-url": f"file:{tmp_path}/progress",
        "memory": f"memory://{uuid.uuid4().hex}",
    }
    yield kinds[request.param]
    storage.delete(kinds["memory"])


def store(progress: StreamProgress, batch_id: int, query_id: str = "q") -> StoredBatch:
    """Store a batch with a model that holds its number, as chief and driver do."""
    model = progress.new_model_folder(batch_id)
    storage.write_bytes(storage.join(model, "weights"), str(batch_id).encode())
    rows = 10 * (batch_id + 1)
    batch = StoredBatch(query_id=query_id, batch_id=batch_id, model=progress.relative(model), rows=rows)
    progress.store(batch)
    return batch


def weights(progress: StreamProgress) -> int:
    assert progress.last is not None
    return int(storage.read_bytes(storage.join(progress.model_path(progress.last), "weights")))


def names_below(folder: str) -> list[str]:
    return [file.path.rpartition("/")[2] for file in storage.list_files(folder)]


def test_what_is_stored_is_found_by_the_next_driver_and_skipped(folder: str) -> None:
    first = StreamProgress(folder)
    assert first.last is None
    assert not first.is_stored("q", 0)
    stored = store(first, 0)
    assert first.is_stored("q", 0)
    second = StreamProgress(folder)
    assert second.last == stored
    assert weights(second) == 0
    assert second.is_stored("q", 0)
    assert not second.is_stored("q", 1)


def test_a_batch_without_rows_keeps_the_model_of_the_batch_before(folder: str) -> None:
    first = StreamProgress(folder)
    stored = store(first, 0)
    for batch_id in range(1, 2 * KEPT):
        first.store(replace(stored, batch_id=batch_id))
    second = StreamProgress(folder)
    assert second.last == replace(stored, batch_id=2 * KEPT - 1)
    assert weights(second) == 0


def test_another_query_is_refused_with_the_remedy(folder: str) -> None:
    store(StreamProgress(folder), 0, "old")
    with pytest.raises(StreamError, match=r"query new, .*query old up to batch 0") as caught:
        StreamProgress(folder).is_stored("new", 0)
    assert "new checkpoint folder" in caught.value.fix


@pytest.mark.parametrize(("batch_id", "says"), [(0, "trained on again"), (3, "left out")])
def test_batches_that_begin_again_or_jump_are_refused(folder: str, batch_id: int, says: str) -> None:
    first = StreamProgress(folder)
    store(first, 0)
    store(first, 1)
    with pytest.raises(StreamError, match=f"batch 2 .* Received: batch {batch_id}; .*{says}"):
        StreamProgress(folder).is_stored("q", batch_id)


def test_an_old_query_without_its_model_is_refused(folder: str) -> None:
    with pytest.raises(StreamError, match=r"batch 0 .* Received: batch 7"):
        StreamProgress(folder).is_stored("q", 7)


def test_the_later_driver_wins_and_the_earlier_fails_at_its_next_store(folder: str) -> None:
    earlier = StreamProgress(folder)
    store(earlier, 0)
    later = StreamProgress(folder)
    with pytest.raises(SupersededError, match=str(os.getpid())):
        store(earlier, 1)
    store(later, 1)
    assert weights(StreamProgress(folder)) == 1


def test_a_record_that_comes_too_late_never_replaces_the_later_driver_s(folder: str) -> None:
    earlier = StreamProgress(folder)
    store(earlier, 0)
    later = StreamProgress(folder)
    newest = store(later, 1)
    # The earlier driver was stopped between its check and its write.
    late = storage.join(earlier._own, "batch-000000009.json")
    storage.write_bytes(late, json.dumps({"query_id": "q", "batch_id": 9}).encode())
    assert StreamProgress(folder).last == newest


def test_a_driver_that_claims_during_a_store_is_noticed_after_it(folder: str) -> None:
    """Either the later driver has read the record, or the earlier one's store fails: never neither."""
    earlier = StreamProgress(folder)
    store(earlier, 0)
    claimed: list[StreamProgress] = []

    class ClaimsInBetween(StreamProgress):
        def __init__(self) -> None:
            self.__dict__.update(earlier.__dict__)

        def check_current(self) -> None:
            super().check_current()
            if not claimed:
                claimed.append(StreamProgress(folder))

    with pytest.raises(SupersededError):
        store(ClaimsInBetween(), 1)
    assert claimed[0].last is not None
    assert claimed[0].last.batch_id == 0
    assert not claimed[0].is_stored("q", 1)
    store(claimed[0], 1)
    assert weights(StreamProgress(folder)) == 1


def test_drivers_that_start_at_the_same_moment_are_ordered(folder: str) -> None:
    first, second = StreamProgress(folder), StreamProgress(folder)
    first._generation = (7, "aaaa")
    second._generation = (7, "bbbb")
    for each in (first, second):
        each._own = storage.join(folder, "generation-00007-" + each._generation[1])
        storage.write_bytes(storage.join(each._own, "_claim"), b"host:1")
    with pytest.raises(SupersededError, match="host:1"):
        store(first, 0)
    store(second, 0)


def test_old_batches_and_drivers_are_removed(folder: str) -> None:
    for number in range(4):
        progress = StreamProgress(folder)
        for batch_id in range(number * 5, number * 5 + 5):
            store(progress, batch_id)
    names = names_below(folder)
    assert sum(name.startswith("batch-") for name in names) == KEPT
    assert names.count("weights") == KEPT
    assert names.count("_claim") == 1
    assert weights(StreamProgress(folder)) == 19


def test_models_of_failed_tries_are_removed(folder: str) -> None:
    progress = StreamProgress(folder)
    for _ in range(3):
        storage.write_bytes(storage.join(progress.new_model_folder(0), "weights"), b"half")
    store(progress, 0)
    assert names_below(folder).count("weights") == 1


def test_the_folder_may_be_moved(tmp_path: Path) -> None:
    store(StreamProgress(str(tmp_path / "here")), 0)
    (tmp_path / "here").rename(tmp_path / "there")
    assert weights(StreamProgress(str(tmp_path / "there"))) == 0


def test_a_record_of_something_else_is_a_typed_error(folder: str) -> None:
    progress = StreamProgress(folder)
    storage.write_bytes(storage.join(progress._own, "batch-000000000.json"), b'{"format": 2}')
    with pytest.raises(StorageError, match=r"batch-000000000\.json"):
        StreamProgress(folder)


@pytest.mark.fault
def test_a_driver_killed_at_any_change_leaves_the_old_state_or_the_new_one() -> None:
    seen = set()
    for changes in itertools.count():
        folder = f"dying://{uuid.uuid4().hex}"
        DyingStore.left = 10_000
        progress = StreamProgress(folder)
        for batch_id in range(KEPT + 1):
            store(progress, batch_id)
        DyingStore.left = changes
        try:
            store(progress, KEPT + 1)
        except KilledError:
            finished = False
        else:
            finished = True
        DyingStore.left = 10_000
        after = StreamProgress(folder)
        assert after.last is not None
        assert weights(after) == after.last.batch_id
        seen.add((after.last.batch_id, finished))
        store(after, after.last.batch_id + 1)  # and it goes on from there
        if finished:
            break
    assert seen == {(KEPT, False), (KEPT + 1, False), (KEPT + 1, True)}


PROGRAM = """
import sys
from tests.unit.test_stream_progress import StreamProgress, store
progress = StreamProgress(sys.argv[1])
batch_id = 0 if progress.last is None else progress.last.batch_id + 1
while True:
    store(progress, batch_id)
    print(batch_id, flush=True)
    batch_id += 1
"""


@pytest.mark.fault
def test_a_driver_killed_by_the_kernel_continues_exactly(tmp_path: Path) -> None:
    folder = str(tmp_path / "progress")
    for kill_after in (1, 4, 7):
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, folder], stdout=subprocess.PIPE, text=True)
        assert program.stdout is not None
        told = -1
        for line in itertools.islice(program.stdout, kill_after):
            told = int(line)
        program.send_signal(signal.SIGKILL)
        told = max([told, *(int(line) for line in program.stdout)])
        program.wait()
        after = StreamProgress(folder)
        assert after.last is not None
        assert after.last.batch_id in (told, told + 1)
        assert weights(after) == after.last.batch_id
