"""FunctionEstimator and SavedModelTransformer: Params, what they refuse, and what is saved."""

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.ml.param import Param

import emberflow as ef
from emberflow.config import RunConfig
from emberflow.ml.function_estimator import OWN_RUN_OPTIONS
from emberflow.ml.function_training import FunctionTraining, exported_by
from emberflow.ml.run_params import RUN_OPTIONS
from emberflow.ml.scoring_params import PREDICT_OPTIONS, predict_options

STAGES = {"FunctionEstimator": {"fn", "cluster"}, "SavedModelTransformer": set[str]()}
SCORING = {
    "inputs": {"image": "pixels", "meta": ["age", "income"]},
    "outputs": {"output_0": ("scores", "array<double>"), "output_1": "label"},
    "signature": "score",
    "tags": ["serve", "gpu"],
    "keepCols": [],
    "errors": "keep",
    "errorCol": "reason",
    "shapes": {"pixels": [28, None]},
    "dtypes": {"pixels": "uint8"},
    "padTo": {"tokens": 7},
    "padValue": {"tokens": -1},
    "batchSize": 64,
    "gpusPerTask": 1,
}


def train(ctx: Any, epochs: int = 1, rate: float = 0.1) -> str:
    return f"{epochs} {rate}"


def scorer(path: Any = "/models/1", **params: Any) -> Any:
    return ef.SavedModelTransformer(path, **params)


def estimator(**params: Any) -> Any:
    return ef.FunctionEstimator(train, **params)


def saved_model(folder: Path, content: bytes = b"graph") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "saved_model.pb").write_bytes(content)
    (folder / "variables").mkdir(exist_ok=True)
    (folder / "variables" / "variables.index").write_bytes(b"values")
    return folder


@pytest.mark.parametrize("name", STAGES)
def test_the_signature_spells_out_every_param(name: str) -> None:
    stage = getattr(ef, name)
    params = {each for each in dir(stage) if isinstance(getattr(stage, each), Param)}
    assert set(inspect.signature(stage).parameters) == params | STAGES[name]


def test_every_option_of_run_can_be_chosen() -> None:
    offered = {*RUN_OPTIONS.values(), *OWN_RUN_OPTIONS.values()}
    assert set(inspect.signature(ef.run).parameters) == offered | {"fn", "data", "spark", "cluster"}
    of_run, ours = inspect.signature(ef.run).parameters, inspect.signature(ef.FunctionEstimator).parameters
    different = {
        name
        for name, option in (RUN_OPTIONS | OWN_RUN_OPTIONS).items()
        if ours[name].default != of_run[option].default
    }
    assert different == {"numWorkers"}  # "auto", as for KerasEstimator


def test_every_option_of_predict_can_be_chosen() -> None:
    options = inspect.signature(ef.predict).parameters
    assert set(options) == {*PREDICT_OPTIONS.values(), "df", "model", "custom_objects"}
    assert set(SCORING) == set(PREDICT_OPTIONS)
    chosen = predict_options(scorer(**SCORING))
    assert chosen == {PREDICT_OPTIONS[name]: value for name, value in SCORING.items()}
    left_out = predict_options(scorer())
    assert {name: options[name].default for name in left_out} == left_out | {"tags": ("serve",)}


def test_each_param_has_a_setter_and_a_getter() -> None:
    for name, value in SCORING.items():
        stage, suffix = scorer(), name[0].upper() + name[1:]
        assert getattr(stage, f"set{suffix}")(value) is stage
        assert getattr(stage, f"get{suffix}")() == value
    assert scorer(Path("/models/2")).getPath() == "/models/2"


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (scorer, "inputs", 3),
        (scorer, "inputs", {"image": 3}),
        (scorer, "inputs", []),
        (scorer, "outputs", {"output_0": ["scores"]}),
        (scorer, "outputs", {}),
        (scorer, "errors", "ignore"),
        (scorer, "batchSize", 0),
        (scorer, "gpusPerTask", -1),
        (scorer, "shapes", {"pixels": 28}),
        (scorer, "dtypes", ["uint8"]),
        (scorer, "padTo", {"tokens": 0}),
        (scorer, "path", ""),
        (scorer, "path", "model.keras"),
        (estimator, "args", ["epochs"]),
        (estimator, "args", {1: 2}),
        (estimator, "numPs", -1),
        (estimator, "numWorkers", 0),
        (estimator, "evaluatorTimeout", 0),
        (estimator, "validationSplit", 1.0),
    ],
)
def test_a_wrong_value_is_refused_by_its_param_s_name(make: Any, name: str, value: Any) -> None:
    with pytest.raises(ef.ConfigError, match=f"`{name}` must") as caught:
        make(**{name: value})
    assert f"Received: {name}=" in caught.value.problem
    assert caught.value.fix


def test_a_misspelt_argument_is_named() -> None:
    with pytest.raises(ef.UnknownNameError, match="unexpected keyword argument 'output'") as caught:
        scorer(output="x")
    assert "outputs" in caught.value.fix
    with pytest.raises(ef.UnknownNameError) as caught:
        estimator().setParams(num_workers=2)
    assert "numWorkers" in caught.value.fix
    with pytest.raises(ef.UnknownNameError, match="must map Params of the stage"):
        estimator().copy({"args": {}})


@pytest.mark.parametrize("args", [{"epoch": 2}, {"ctx": 2}])
def test_arguments_that_the_function_does_not_take_are_refused_before_anything_starts(
    args: dict[str, Any],
) -> None:
    with pytest.raises(ef.ConfigError, match=r"Your function must take `ctx` and `args`.*train\(ctx"):
        estimator(args=args).fit(None)


def test_what_is_no_function_is_refused_before_anything_starts() -> None:
    with pytest.raises(ef.ConfigError, match="`fn` must be a function"):
        ef.FunctionEstimator("train").fit(None)  # type: ignore[arg-type]


def node(is_chief: bool = True) -> Any:
    return SimpleNamespace(is_chief=is_chief, absolute_path=lambda path: f"{path}")


def test_only_the_chief_must_return_a_path(tmp_path: Path) -> None:
    import cloudpickle

    path = str(saved_model(tmp_path / "model"))
    training = FunctionTraining(cloudpickle.dumps(lambda ctx: path if ctx.is_chief else None))
    exported = training(node())
    assert exported is not None
    assert exported.path == path
    assert training(node(is_chief=False)) is None


@pytest.mark.parametrize("value", [None, 0.5, "", {"path": "/x"}])
def test_a_function_that_returns_no_path_is_told_what_to_return(value: Any) -> None:
    with pytest.raises(ef.ModelError, match="must return the path of the SavedModel") as caught:
        exported_by(node(), value)
    assert "return ctx.export(model" in caught.value.fix


def test_a_path_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ef.ModelError, match="where the chief sees no complete one"):
        exported_by(node(), tmp_path)


def test_a_saved_transformer_has_a_copy_of_its_model(tmp_path: Path) -> None:
    model = saved_model(tmp_path / "model")
    stage = scorer(model, **SCORING)
    stage.save(str(tmp_path / "stage"))
    saved_model(model, b"another graph")
    loaded = ef.SavedModelTransformer.load(str(tmp_path / "stage"))
    assert loaded.uid == stage.uid
    assert predict_options(loaded) == predict_options(stage)
    copy = Path(loaded.getOrDefault("path"))
    assert copy.is_relative_to(tmp_path / "stage")
    assert (copy / "saved_model.pb").read_bytes() == b"graph"
    assert (copy / "variables" / "variables.index").exists()


def test_the_newest_version_is_saved(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for number in (1, 2, 10):
        saved_model(tmp_path / "models" / str(number), str(number).encode())
    scorer(tmp_path / "models").save(str(tmp_path / "stage"))
    assert (tmp_path / "stage" / "saved_model" / "saved_model.pb").read_bytes() == b"10"


def test_a_transformer_without_a_model_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ef.ModelError, match="There must be a model at the path"):
        scorer(tmp_path / "nothing").save(str(tmp_path / "stage"))


def test_a_model_that_a_later_fit_replaced_is_refused(tmp_path: Path) -> None:
    path = str(saved_model(tmp_path / "model"))
    stage = scorer(path)
    stage._exported = exported_by(node(), path)
    stage.save(str(tmp_path / "first"))
    saved_model(tmp_path / "model", b"of another fit")
    with pytest.raises(ef.ModelError, match="which was replaced since") as caught:
        stage.copy().save(str(tmp_path / "second"))
    assert "uuid" in caught.value.fix
    scorer(path).save(str(tmp_path / "second"))  # one that was not fitted scores with what is there


def test_an_estimator_is_saved_with_its_code_which_must_be_trusted(tmp_path: Path) -> None:
    stage = estimator(args={"epochs": 3}, outputs={"output_0": ("scores", "float")}, numPs="auto")
    stage.save(str(tmp_path / "stage"))
    with pytest.raises(ef.ConfigError, match=r"must be trusted to be loaded \(function.pickle\)") as caught:
        ef.FunctionEstimator.load(str(tmp_path / "stage"))
    assert "FunctionEstimator.load(path, trusted=True)" in caught.value.fix
    loaded = ef.FunctionEstimator.load(str(tmp_path / "stage"), trusted=True)
    assert loaded._function()(None) == "3 0.1"
    assert loaded.uid == stage.uid
    names = {param.name: value for param, value in loaded.extractParamMap().items()}
    assert names == {param.name: value for param, value in stage.extractParamMap().items()}


def test_arguments_that_no_file_can_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ef.ConfigError, match="`args` must be numbers, text, lists and dicts to be saved"):
        estimator(args={"rate": object()}).save(str(tmp_path / "stage"))


def test_a_stage_of_another_class_is_named(tmp_path: Path) -> None:
    estimator().save(str(tmp_path / "stage"))
    with pytest.raises(ef.StorageError, match="Received: a saved FunctionEstimator") as caught:
        ef.SavedModelTransformer.load(str(tmp_path / "stage"))
    assert "FunctionEstimator.load(path)" in caught.value.fix
    with pytest.raises(ef.StorageError, match="must hold a saved FunctionEstimator"):
        ef.FunctionEstimator.load(str(tmp_path))


def test_the_defaults_of_run_are_options_of_run() -> None:
    stage = estimator(numWorkers=2)
    options = {option: stage.getOrDefault(name) for name, option in OWN_RUN_OPTIONS.items()}
    RunConfig(workers=2, **options)
