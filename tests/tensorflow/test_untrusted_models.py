"""A folder or file from somebody else runs none of its code unless the user says that it is trusted."""

import json
import pickle
from importlib.metadata import version
from pathlib import Path
from typing import Any

import keras
import pytest

import emberflow as ef
from emberflow._score.model_source import LoadOptions, describe_path
from emberflow._score.model_text import show_model
from emberflow.cli.show import run_show


class Creates:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return create, (self.path,)


def create(path: Path) -> list[object]:
    path.touch()
    return []


def crafted(folder: Path, trace: Path, kind: str, names: list[str]) -> Path:
    """Write a stage whose metadata deny the code that lies beside them."""
    (folder / "metadata").mkdir(parents=True)
    metadata = {
        "class": f"emberflow.ml.{kind}",
        "uid": f"{kind}_1",
        "sparkVersion": version("pyspark"),
        "timestamp": 1,
        "paramMap": {},
        "defaultParamMap": {"featuresCol": "x", "labelCol": "y"},
        "emberflow": {"has_code": False, "history": {}, "answers": []},
    }
    (folder / "metadata" / "part-00000").write_text(json.dumps(metadata))
    for name in names:
        (folder / name).write_bytes(pickle.dumps(Creates(trace)))
    return folder


@pytest.mark.fault
@pytest.mark.parametrize("name", ["builder.pickle", "callbacks.pickle"])
def test_an_estimators_code_is_refused_whatever_its_metadata_say(name: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    folder = crafted(tmp_path / "stage", trace, "KerasEstimator", [name])
    for load in (ef.KerasEstimator.load, ef.KerasEstimator.read().load):  # Spark's Pipeline uses the second
        with pytest.raises(ef.ConfigError, match=rf"{name}.*trusted=False"):
            load(str(folder))
    assert not trace.exists()
    ef.KerasEstimator.load(str(folder), trusted=True)
    assert trace.exists(), "else this test could not fail"


@pytest.mark.fault
def test_a_pickle_in_a_models_folder_is_never_read(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    names = ["builder.pickle", "callbacks.pickle", "model.keras"]
    folder = crafted(tmp_path / "stage", trace, "KerasModel", names)
    model = ef.KerasModel.load(str(folder))
    with pytest.raises((ValueError, OSError)):
        model.keras()
    assert run_show(str(folder)) == 2  # there is no SavedModel in it
    assert not trace.exists()


@pytest.fixture(params=["model.keras", "model.h5"])
def file_with_code(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A Keras file with a Python lambda that creates a file when the model is built."""
    trace = tmp_path / "trace"
    code = f"lambda x: (open({str(trace)!r}, 'w').close(), x)[1]"
    model = keras.Sequential([keras.Input((2,)), keras.layers.Lambda(eval(code))])
    path = tmp_path / request.param
    model.save(path)
    trace.unlink()
    return path, trace


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_keras_file_with_code_is_described_shown_and_loaded_without_running_it(
    file_with_code: tuple[Path, Path], tmp_path: Path
) -> None:
    path, trace = file_with_code
    for read in (lambda: describe_path(str(path), LoadOptions()), lambda: show_model(str(path))):
        with pytest.raises(ef.ModelError, match="cannot be loaded"):
            read()
    folder = crafted(tmp_path / "stage", trace, "KerasModel", [])
    (folder / "model.keras").write_bytes(path.read_bytes())
    with pytest.raises((ValueError, OSError)):
        ef.KerasModel.load(str(folder)).keras()
    assert not trace.exists()
    keras.saving.load_model(path, safe_mode=False)
    assert trace.exists(), "else this test could not fail"
