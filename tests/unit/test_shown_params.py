"""What the record of an estimator's training says of its Params."""

import json
from typing import Any

import pytest

import emberflow as ef
from emberflow._driver.recording import record_result, start_recording
from emberflow._record.events import RunPlanned
from emberflow._record.recorder import Recorder
from emberflow._record.run_state import RunState, fold
from emberflow._record.run_summary import differences
from emberflow.ml.function_estimator import OWN_RUN_OPTIONS
from emberflow.ml.function_training import Exported, FunctionTraining
from emberflow.ml.run_params import RUN_OPTIONS
from emberflow.ml.shown_params import LENGTH, shown_params
from emberflow.ml.training import Trained
from tests.unit.runs_simulated import succeeded

ADAM = {
    "module": "keras.optimizers",
    "class_name": "Adam",
    "config": {"name": "adam", "learning_rate": 0.0010000000474974513, "clipnorm": None, "amsgrad": False},
    "registered_name": None,
}
HISTORY = {"loss": [2.0, 0.51234], "accuracy": [0.5, 0.75]}
TRAINED = Trained(keras_file=b"x" * 99, history=HISTORY, outputs=())


def build_model() -> None: ...


class Stop:
    """Stands for a callback."""


def keras_estimator(**params: Any) -> Any:
    return ef.KerasEstimator(model=build_model, **params)


def recorded(fn: Any, **options: Any) -> RunState:
    recorder = Recorder()
    start_recording(recorder, None, "0a1b2c3d", "run", fn, record=None, options=options)
    return recorder.state


def test_the_params_that_were_set_are_shown_and_no_others() -> None:
    estimator = keras_estimator(
        epochs=3,
        batchSize=64,
        optimizer=ADAM,
        metrics=["accuracy", "mae"],
        numWorkers=2,
        padValue=float("nan"),
    )
    shown = shown_params(estimator, model=estimator.model, callbacks=[Stop(), Stop()])
    assert {name: value for name, value in shown.items() if name != "padValue"} == {
        "model": "build_model",
        "callbacks": "Stop, Stop",
        "epochs": 3,
        "batchSize": 64,
        "optimizer": "Adam(learning_rate=0.001)",
        "metrics": "accuracy, mae",
    }
    training = FunctionTraining(b"", (), shown)
    head = recorded(training, workers=2, verbose=False, page=True).head()
    assert head["options"]["padValue"] == "nan"
    assert (head["options"]["epochs"], head["options"]["workers"]) == (3, 2)
    assert not {"verbose", "page"} & set(head["options"])
    json.dumps(head, allow_nan=False)


def test_arguments_of_a_function_are_options_of_their_own_without_secrets_addresses_or_length() -> None:
    args = {
        "rate": 0.1,
        "hf_token": "hf_abcdef",
        "tokenizer": "bert",
        "source": "https://me:hunter2@host/data",
        "store": {"bucket": "b", "apiKey": "123"},
        "activation": lambda x: x,
        "words": ["w" * 50] * 50,
    }
    estimator = ef.FunctionEstimator(build_model, args=args, cache=False, numPs=1)
    shown = shown_params(estimator, {*RUN_OPTIONS, *OWN_RUN_OPTIONS}, fn=estimator.fn)
    assert len(shown.pop("args.words")) <= LENGTH + 4
    assert shown == {
        "fn": "build_model",
        "args.rate": 0.1,
        "args.hf_token": "(not recorded)",
        "args.tokenizer": "bert",
        "args.source": "https://***@host/data",
        "args.store": "bucket: b, apiKey: (not recorded)",
        "args.activation": "<lambda>",
    }


def test_two_trainings_side_by_side_show_what_was_changed_and_not_how_they_were_watched() -> None:
    states = []
    for epochs, more in ((None, {"record": "/a", "verbose": False}), (5, {"record": "/b", "page": True})):
        estimator = keras_estimator(batchSize=32, **({"epochs": epochs} if epochs else {}))
        started = recorded(FunctionTraining(b"", (), shown_params(estimator)), workers=2, **more).started
        assert started is not None
        states.append(fold([started, *list(succeeded())[1:]]))
    rows = differences(*states)
    assert rows[0] == ("epochs", "default", "5")
    assert [name for name, *_ in rows[:3]] == ["epochs", "state", "seconds"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (TRAINED, "loss 0.5123  accuracy 0.75"),
        (Exported(path="/models/1", fingerprint="f"), "/models/1"),
        ({"loss": 0.1}, "{'loss': 0.1}"),
        (None, ""),
    ],
)
def test_the_value_of_a_training_is_what_people_want_to_know_of_it(value: Any, shown: str) -> None:
    recorder = Recorder()
    record_result(recorder, value)
    assert recorder.state.head()["value"] == shown


def test_the_plan_is_told_in_words() -> None:
    plan = {
        "strategy": "data_parallel", "transport": "ring", "launch": "independent", "rendezvous": "driver", "gpus": 0,
        "launch_reason": "spark.dynamicAllocation.enabled=true, and Spark refuses barriers with it", "encrypt": True,
        "is_live": False,
    }  # fmt: skip
    assert fold([RunPlanned(t=0.0, nodes=(), plan=plan)]).head()["plan"] == {
        "strategy": "data_parallel",
        "transport": "ring",
        "GPUs per worker": 0,
        "encrypted": "yes",
        "nodes start": "each task when it has a slot "
        "(spark.dynamicAllocation.enabled=true, and Spark refuses barriers with it)",
        "nodes meet": "at the driver",
    }
