"""Models in processes: loaded once, packed and found, shown, and answered from a process of their own."""

import os
import zipfile
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from emberflow._environment import variables_set
from emberflow._score import predictor
from emberflow._score.child_predictor import child_scorer
from emberflow._score.input_plan import InputOptions, plan_inputs
from emberflow._score.model_facts import ModelFacts
from emberflow._score.model_source import ModelSource, fingerprint, kind_of, pack
from emberflow._score.model_text import show_model
from emberflow._score.output_plan import OutputPlan
from emberflow._score.scoring import ScoreSpec, local_scorer
from emberflow.errors import ConfigError, ModelError
from tests.unit.test_score_saved_model import MODEL

BATCH = pa.RecordBatch.from_pydict({"x": pa.array([1.0, 2.0, 3.0])})


def spec_of(load: Any, key: str, outputs: tuple[str, ...] = ("y",), kind: Any = None) -> ScoreSpec:
    facts = ModelFacts(kind="function", inputs=(), outputs=())
    fn = cloudpickle.dumps(load)
    return ScoreSpec(
        source=ModelSource(kind="function", key=key, fn=fn, takes_one=True, outputs=outputs),
        tensors=(),
        inputs=plan_inputs(BATCH.schema, facts, "x", InputOptions(shapes={}, dtypes={})),
        outputs=tuple(OutputPlan(name=name, column=name, type=kind or pa.float64()) for name in outputs),
        keep={},
        batch_size=3,
        errors="raise",
    )


def doubling() -> Any:
    return lambda x: x * 2


def test_a_process_loads_a_model_once_and_keeps_few(tmp_path: Path) -> None:
    def load() -> Any:
        with (tmp_path / "loads").open("a") as file:
            file.write("x")
        return lambda x: x

    def loads() -> int:
        return len((tmp_path / "loads").read_text())

    for _ in range(3):
        local_scorer(spec_of(load, "once"), 0)(BATCH)
    assert loads() == 1
    for other in range(predictor.KEPT):
        local_scorer(spec_of(doubling, f"other-{other}"), 0)
    local_scorer(spec_of(load, "once"), 0)
    assert loads() == 2
    assert len(predictor.MODELS) == predictor.KEPT


def test_a_process_of_its_own_gives_the_same_and_ends() -> None:
    def load() -> Any:
        return lambda x: (x * 2, np.full(len(x), os.getpid(), np.float64))

    spec = spec_of(load, "child", outputs=("y", "pid"))
    with child_scorer(spec, 0) as score:
        first, second = score(BATCH), score(BATCH.slice(1))
    assert first.column("y").to_pylist() == [2.0, 4.0, 6.0]
    assert second.column("y").to_pylist() == [4.0, 6.0]
    pid = int(first.column("pid")[0].as_py())
    assert pid != os.getpid()
    assert not Path(f"/proc/{pid}").exists()


def test_errors_come_out_of_a_process_of_its_own() -> None:
    def breaks() -> Any:
        raise OSError("no such weights")

    with (
        pytest.raises(ModelError, match="The model raised OSError: no such weights"),
        child_scorer(spec_of(breaks, "b"), 0),
    ):
        pass

    def dies() -> Any:
        return lambda _: os._exit(3)

    with (
        pytest.raises(ModelError, match="exited without reporting a result"),
        child_scorer(spec_of(dies, "d"), 0) as score,
    ):
        score(BATCH)


def test_predictors_must_give_what_was_declared() -> None:
    cases = {
        "a": (lambda: lambda x: {"z": x}, r"Received: z; missing: y"),
        "b": (lambda: 7, "must return a predictor"),
        "c": (lambda: lambda x: x[:1], "one value per row"),
    }
    for key, (load, words) in cases.items():
        with pytest.raises(ModelError, match=words):
            local_scorer(spec_of(load, key), 0)(BATCH)


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.delenv("EMBERFLOW_PROBE", raising=False)
    with variables_set({"CUDA_VISIBLE_DEVICES": "1", "EMBERFLOW_PROBE": "x"}):
        assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["EMBERFLOW_PROBE"]) == ("1", "x")
    assert (os.environ["CUDA_VISIBLE_DEVICES"], "EMBERFLOW_PROBE" in os.environ) == ("5", False)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(MODEL)
    (folder / "variables" / "variables.index").write_bytes(b"index")
    return folder


def test_a_folder_is_packed_by_its_content(model: Path, tmp_path: Path) -> None:
    into = tmp_path / "packed"
    into.mkdir()
    packed = pack(model, into)
    assert pack(model, into) == packed
    assert sorted(zipfile.ZipFile(packed).namelist()) == ["saved_model.pb", "variables/variables.index"]
    (model / "variables" / "variables.index").write_bytes(b"other")
    assert pack(model, into) != packed
    assert {file.name for file in into.iterdir()} == {packed.name, pack(model, into).name}


def test_a_file_is_packed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "m.keras").write_bytes(b"zip")
    packed = pack(tmp_path / "m.keras", tmp_path)
    assert (packed.suffix, packed.read_bytes()) == (".keras", b"zip")


def test_an_archive_is_opened_once_in_a_folder_that_spark_deletes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, deleted = tmp_path / "kept", tmp_path / "deleted"
    kept.mkdir()
    deleted.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(deleted))
    packed = pack(model, kept)
    monkeypatch.setattr("pyspark.SparkFiles.get", lambda name: str(kept / name))
    source = ModelSource(kind="saved_model", key=packed.stem, file=packed.name, is_archive=True)
    folder = Path(predictor.local_model_path(source))
    assert (folder.parent, (folder / "variables" / "variables.index").read_bytes()) == (deleted, b"index")
    assert list(kept.iterdir()) == [packed]
    packed.unlink()
    assert predictor.local_model_path(source) == str(folder)


def test_the_fingerprint_follows_the_content(model: Path) -> None:
    before = fingerprint(str(model))
    assert fingerprint(str(model)) == before
    (model / "variables" / "variables.index").write_bytes(b"another index")
    assert fingerprint(str(model)) != before


def test_show_lists_all_signatures(model: Path, tmp_path: Path) -> None:
    shown = show_model(str(model))
    assert "SavedModel with tags serve, created by TensorFlow 2.21.0" in shown
    assert "signature serving_default\n  input   x (float32 of shape (28, 28))" in shown
    assert "SavedModel with tags gpu, serve" in shown
    with pytest.raises(ModelError, match="There must be a model"):
        show_model(str(tmp_path / "nowhere"))


def test_what_can_be_a_model() -> None:
    kinds = [kind_of(one) for one in ("hdfs:///m/1", "a.keras", Path("b.h5"), doubling)]
    assert kinds == ["saved_model", "keras", "keras", "function"]
    with pytest.raises(ConfigError, match="`model` must be"):
        kind_of(None)
