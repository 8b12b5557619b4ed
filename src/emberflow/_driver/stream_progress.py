"""The record of a stream's training: the stored model, and the micro-batches that it has seen; one driver writes it.

    <folder>/generation-00003-5f1c9a20/_claim                 which driver this is
                                       model-000000012-9c41/  the model after batch 12, written by the chief
                                       batch-000000012.json   query, batch and model; written last, by the driver

The small file, written atomically on every storage, makes a model and a batch count together. A driver claims a
generation of its own when it starts and writes nowhere else; a higher generation supersedes the lower ones. No
storage is asked for a compare-and-swap. A driver claims first and reads then; it checks for higher claims before it
writes a record, and again after it. So either the check finds the later driver, and the batch fails here; or that
driver's claim came after the record, and it has read the record.
"""

import json
import os
import re
import secrets
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass

from emberflow import storage
from emberflow.errors import StorageError, StreamError, SupersededError

CLAIM = "_claim"
KEPT = 3  # stored batches: the last one to start from, the others in case a person must go back
_GENERATION = re.compile(r"generation-(\d+)-(\w+)")
_RECORD = re.compile(r"batch-(\d+)\.json")
_MODEL = re.compile(r"model-\d+-\w+")


@dataclass(frozen=True, kw_only=True)
class StoredBatch:
    """A micro-batch that the stored model has seen, as the last one.

    Attributes:
        query_id: The id of the streaming query; it stays the same as long as the query's own checkpoint does.
        batch_id: The number of the micro-batch.
        model: The model's folder, relative to the progress folder; empty before anything was trained.
        rows: All rows that the model has been trained on.
        columns: Their columns and types, as Spark writes them.
        version: The number of the last version that was exported with a model; 0 for none.
        batches_since_version: Batches that were trained on after that one.
    """

    query_id: str
    batch_id: int
    model: str = ""
    rows: int = 0
    columns: str = ""
    version: int = 0
    batches_since_version: int = 0

    @property
    def has_version(self) -> bool:
        """Whether the model's folder holds an exported version, which is to be published."""
        return self.version > 0 and not self.batches_since_version


class StreamProgress:
    """The progress of one stream's training, held by one driver from its claim on.

    Attributes:
        last: The last stored batch, or None before the first.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        numbers = [number for (number, _), _ in self._generations()]
        self._generation = (max(numbers, default=-1) + 1, secrets.token_hex(4))
        self._own = storage.join(folder, "generation-{:05d}-{}".format(*self._generation))
        storage.write_bytes(storage.join(self._own, CLAIM), f"{socket.gethostname()}:{os.getpid()}".encode())
        records = self._records()  # after the claim: see the module's docstring
        self.last = _read(records[-1][1]) if records else None

    def is_stored(self, query_id: str, batch_id: int) -> bool:
        """Tell whether the stored model has seen a batch already; if not, the batch must be the next one.

        Spark repeats at most one batch after a crash: the one that ran, with the same rows.
        """
        last = self.last
        if last is not None and last.query_id != query_id:
            raise StreamError(
                f"The stream must continue the query that the stored model was trained by. Received: query "
                f"{query_id}, which begins again with other batches; stored in {self._folder}: query "
                f"{last.query_id} up to batch {last.batch_id}.",
                fix="Restore the query's own checkpoint; or pass a new checkpoint folder, to train a new model from "
                "the stream's first row.",
            )
        expected = 0 if last is None else last.batch_id + 1
        if last is not None and batch_id == last.batch_id:
            return True
        if batch_id != expected:
            what = "its rows would be trained on again" if batch_id < expected else "rows would be left out"
            raise StreamError(
                f"The stream must continue with batch {expected} of the training in {self._folder}. Received: batch "
                f"{batch_id}; {what}.",
                fix="Restore query and model from the same time, or start again if another driver was active; or "
                "pass a new checkpoint folder, to train a new model from the stream's first row.",
            )
        return False

    def new_model_folder(self, batch_id: int) -> str:
        """Return where the chief stores the model after this batch; another one at each call."""
        return storage.join(self._own, f"model-{batch_id:09d}-{secrets.token_hex(4)}")

    def model_path(self, batch: StoredBatch) -> str:
        """Return the path of a stored batch's model."""
        return storage.join(self._folder, batch.model)

    def relative(self, model_folder: str) -> str:
        """Return the name of a model's folder as records hold it, so that the whole folder may be moved."""
        return "/".join(model_folder.rstrip("/").split("/")[-2:])

    def store(self, batch: StoredBatch) -> None:
        """Make a batch and its model count; the model's folder must be complete.

        Raises:
            SupersededError: Another driver has started on this folder.
        """
        self.check_current()
        record = storage.join(self._own, f"batch-{batch.batch_id:09d}.json")
        storage.write_bytes(record, json.dumps(asdict(batch)).encode())
        self.check_current()  # a driver that came in between may not have read the record
        self.last = batch
        with suppress(StorageError):  # what is left over goes after the next batch
            self._remove_old()

    def check_current(self) -> None:
        """Raise if a later driver has claimed this stream's training."""
        later = [(number, path) for number, path in self._generations() if number > self._generation]
        if later:
            owner = _owner(later[-1][1])
            raise SupersededError(
                f"Only the newest driver may train this stream's model. Received: {self._folder}, taken over by "
                f"{owner} since this driver started.",
                fix="Nothing, if that driver is yours: it continues. Otherwise stop it and start this one again, "
                "or give each its own checkpoint folder.",
            )

    def _generations(self) -> list[tuple[tuple[int, str], str]]:
        """Return number, id and path of all generations, oldest first."""
        names = ((_GENERATION.fullmatch(_name(path)), path) for path in storage.list_folder(self._folder))
        return sorted(((int(match[1]), match[2]), path) for match, path in names if match)

    def _records(self) -> list[tuple[int, str]]:
        """Return batch and path of all records, oldest first: by generation, then by batch."""
        found = []
        for _, generation in self._generations():
            with suppress(FileNotFoundError):  # another driver has just removed it
                names = ((_RECORD.fullmatch(_name(path)), path) for path in storage.list_folder(generation))
                found += sorted((int(match[1]), path) for match, path in names if match)
        return found

    def _remove_old(self) -> None:
        """Delete older records, and models that no record names; only once this driver has stored a batch."""
        records = self._records()
        for _, record in records[:-KEPT]:
            storage.delete(record)  # before its model: a record never names a model that is not there
        named = {_read(record).model for _, record in records[-KEPT:]}
        holding = {record.rpartition("/")[0] for _, record in records[-KEPT:]}
        for number, generation in self._generations():
            models = [path for path in storage.list_folder(generation) if _MODEL.fullmatch(_name(path))]
            unnamed = [path for path in models if self.relative(path) not in named]
            if number < self._generation and len(unnamed) == len(models) and generation not in holding:
                storage.delete(generation)
                continue
            for path in unnamed:
                storage.delete(path)


def _read(record: str) -> StoredBatch:
    try:
        return StoredBatch(**json.loads(storage.read_bytes(record)))
    except (TypeError, ValueError) as error:
        raise StorageError(
            f"The record of a stream's training must be readable. Received: {record} ({error}).",
            fix="Use the version of Emberflow that wrote it, or pass a new checkpoint folder.",
        ) from error


def _owner(generation: str) -> str:
    try:
        return storage.read_bytes(storage.join(generation, CLAIM)).decode(errors="replace")
    except FileNotFoundError:
        return "another driver"


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
