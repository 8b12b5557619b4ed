"""KerasEstimator's signature, Params and options of `ef.run` belong together: none can be forgotten."""

import inspect
from typing import Any

import pytest
from pyspark.ml.param import Param
from pyspark.ml.param import shared as spark_params

import emberflow as ef
from emberflow.config import RunConfig
from emberflow.ml.run_params import RUN_OPTIONS, run_options

SIGNATURE = inspect.signature(ef.KerasEstimator).parameters
PARAMS = {name for name in dir(ef.KerasEstimator) if isinstance(getattr(ef.KerasEstimator, name), Param)}

# Options of `ef.run` that the estimator does not offer, each with its reason.
NOT_OFFERED = {
    "cluster": "an argument of the estimator, but no Param: it belongs to this process",
    "fn": "the estimator's own training function",
    "data": "the DataFrame that `fit` receives",
    "spark": "the session of that DataFrame",
    "evaluator": "validation rows are evaluated by the workers after each epoch",
    "evaluator_timeout": "there is no evaluator",
    "cache": "a stream has no second epoch, no validation rows and no position to resume from",
}
# Where the estimator's default is not that of `ef.run`.
OTHER_DEFAULTS = {"numWorkers": "auto", "numPs": 1}

VALUES: dict[str, Any] = {
    "numWorkers": 3,
    "numPs": 2,
    "gpusPerWorker": 1,
    "gpuSource": "nvml",
    "gpuResource": "accelerator",
    "transport": "ring",
    "strategy": "periodic",
    "tensorboardDir": "/shared/logs",
    "tensorboardHost": "0.0.0.0",
    "checkpointDir": "/shared/checkpoints",
    "maxRestarts": 4,
    "restartOnError": True,
    "spoolDir": "/local",
    "spoolLimit": 10**12,
    "startTimeout": 7.0,
    "executorTimeout": 6.0,
    "joinTimeout": 8.0,
    "exchangeTimeout": 9.0,
    "preload": False,
    "verbose": False,
    "encrypt": True,
    "allowUnencrypted": True,
    "driverHost": "10.0.0.1",
    "portRange": "30000-30100",
    "record": "/shared/runs",
    "page": 8080,
}


def test_the_signature_spells_out_every_param() -> None:
    assert set(SIGNATURE) == PARAMS | {"model", "callbacks", "cluster", "evaluation"}
    assert {each.kind for each in SIGNATURE.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_the_docstring_explains_every_argument() -> None:
    described = inspect.getdoc(ef.KerasEstimator) or ""
    assert [name for name in SIGNATURE if f"\n    {name}: " not in described] == []


def test_every_option_of_run_is_a_param_or_has_a_reason_not_to_be() -> None:
    assert set(inspect.signature(ef.run).parameters) == set(RUN_OPTIONS.values()) | set(NOT_OFFERED)
    assert set(RUN_OPTIONS) <= PARAMS


def test_defaults_are_those_of_run() -> None:
    of_run = inspect.signature(ef.run).parameters
    different = {
        name: SIGNATURE[name].default
        for name, option in RUN_OPTIONS.items()
        if SIGNATURE[name].default != of_run[option].default
    }
    assert different == OTHER_DEFAULTS


def test_every_run_option_reaches_run() -> None:
    options = run_options(ef.KerasEstimator(**VALUES))
    assert options == {RUN_OPTIONS[name]: value for name, value in VALUES.items()}
    RunConfig(**options)


def test_what_is_not_set_is_left_to_run() -> None:
    options = run_options(ef.KerasEstimator())
    assert options["ps"] == 0  # synchronous training has no parameter servers, whatever numPs says
    assert "driver_host" not in options
    RunConfig(**options)


def test_defaults_of_the_signature_are_the_defaults_of_the_params() -> None:
    stage = ef.KerasEstimator()
    set_nowhere = {name for name in PARAMS if not stage.isDefined(name)}
    assert set_nowhere == {name for name in PARAMS if SIGNATURE[name].default is None}
    assert stage.extractParamMap() == {
        stage.getParam(name): SIGNATURE[name].default for name in PARAMS - set_nowhere
    }
    assert stage.getSeed() == 0  # Spark's own default differs from process to process


@pytest.mark.parametrize(
    "name",
    [
        "FeaturesCol",
        "LabelCol",
        "PredictionCol",
        "RawPredictionCol",
        "ProbabilityCol",
        "WeightCol",
        "ValidationIndicatorCol",
        "Seed",
    ],
)
def test_params_that_spark_has_are_spark_s(name: str) -> None:
    mixin = getattr(spark_params, f"Has{name}")
    assert issubclass(ef.KerasEstimator, mixin)
    assert issubclass(ef.KerasModel, mixin) == (name not in ("WeightCol", "ValidationIndicatorCol", "Seed"))


def test_each_param_has_a_setter_and_a_getter() -> None:
    for name, value in VALUES.items():
        suffix = name[0].upper() + name[1:]
        stage = ef.KerasEstimator()
        assert getattr(stage, f"set{suffix}")(value) is stage
        assert getattr(stage, f"get{suffix}")() == value


def test_copies_keep_every_param() -> None:
    stage = ef.KerasEstimator(**VALUES)
    assert run_options(stage.copy()) == run_options(stage)
    assert run_options(stage.copy({stage.numPs: 5}))["ps"] == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpuSource", "amd"),
        ("gpuResource", "a b"),
        ("transport", "pigeon"),
        ("strategy", "alone"),
        ("wireDtype", "float8"),
        ("tensorboardDir", ""),
        ("spoolLimit", 0),
        ("startTimeout", 0),
        ("portRange", "30100-30000"),
    ],
)
def test_a_wrong_value_is_refused_by_its_param_s_name(name: str, value: Any) -> None:
    with pytest.raises(ef.ConfigError, match=f"`{name}` must") as caught:
        ef.KerasEstimator(**{name: value})
    assert f"Received: {name}=" in caught.value.problem
    assert name in caught.value.fix


def test_an_unknown_name_is_refused_as_python_does() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'epoch'"):
        ef.KerasEstimator(epoch=3)  # type: ignore[call-arg]
