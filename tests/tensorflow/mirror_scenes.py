"""Keras callbacks with remote paths on all ranks at once: interrupted, and resumed by nodes with empty disks."""

import contextlib
from pathlib import Path
from typing import Any

import keras

from emberflow import storage
from emberflow._node.mirror import Mirror
from emberflow._node.mirrored_callbacks import mirror_model_fit, path_of, with_resolved_paths
from emberflow.strategies.data_parallel.distribute import distribute
from tests.tensorflow import parallel_cases as cases
from tests.tensorflow.parallel_scenes import Crash, bits, fresh, rows

URL = "memory://runs/remote"


def writers() -> list[Any]:
    """Return one callback of each kind that writes."""
    callbacks = keras.callbacks
    return [
        callbacks.BackupAndRestore(f"{URL}/backup"),
        callbacks.CSVLogger(f"{URL}/log.csv", append=True),
        callbacks.ModelCheckpoint(f"{URL}/best.keras", monitor="loss", save_best_only=True),
        callbacks.ModelCheckpoint(f"{URL}/all/{{epoch:02d}}.weights.h5", save_weights_only=True, save_freq=2),
        callbacks.TensorBoard(f"{URL}/logs"),
    ]


def names() -> list[str]:
    """Return the files there, without the parts of their names that differ from run to run."""
    found = sorted(file.path.removeprefix(URL) for file in storage.list_files(URL))
    return [name if "tfevents" not in name else name.partition(".out")[0] for name in found]


def remote_callbacks_are_resumed(transport: Any, folder: str) -> dict[str, Any]:
    storage.delete(URL)

    def fit(attempt: str, *more: Any) -> tuple[Any, Any]:
        model = fresh(transport.rank, lambda: cases.dense(cases.adam()))
        callbacks = writers()
        with Mirror(Path(folder) / f"{attempt}-{transport.rank}") as mirror:
            mirror_model_fit(model, mirror, writes=transport.rank == 0)
            distribute(model, transport)
            options = {"epochs": 4, "callbacks": [*callbacks, *more], "verbose": 0}
            try:
                return model, model.fit(rows(transport), **options)
            finally:
                assert {path_of(each).partition(":")[0] for each in callbacks} == {"memory"}

    with contextlib.suppress(InterruptedError):
        fit("first", Crash())
    interrupted = names()
    model, history = fit("second")
    best = Path(folder) / f"best-{transport.rank}.keras"
    if transport.rank == 0:
        best.write_bytes(storage.read_bytes(f"{URL}/best.keras"))
    plain = keras.callbacks.BackupAndRestore("backup")
    (resolved,) = with_resolved_paths([plain], lambda path: f"{URL}/{path}")
    assert (path_of(plain), path_of(resolved)) == ("backup", f"{URL}/backup")
    assert with_resolved_paths([plain], lambda path: f"/{path}") == [plain]
    return {
        "interrupted": interrupted,
        "epochs": history.epoch,
        "finished": names(),
        "csv": storage.read_bytes(f"{URL}/log.csv").decode().splitlines() if transport.rank == 0 else [],
        "best": bits(keras.models.load_model(best)) == bits(model) if transport.rank == 0 else None,
    }


def a_path_below_a_file_is_refused(transport: Any, folder: str) -> str:
    storage.delete(URL)
    storage.write_bytes(f"{URL}/taken", b"a file")
    model = fresh(transport.rank)
    mirror = Mirror(Path(folder) / str(transport.rank))
    mirror_model_fit(model, mirror, writes=True)
    wanted = keras.callbacks.CSVLogger(f"{URL}/taken/log.csv")
    try:
        model.fit(rows(transport), verbose=0, callbacks=[wanted])
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"
