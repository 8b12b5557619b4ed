"""A misspelt name is answered with the one that was probably meant."""

from types import SimpleNamespace
from typing import Any

import pytest

import emberflow as ef
from emberflow._names import names_checked
from emberflow._node.context import Context

ESTIMATOR: Any = ef.KerasEstimator


@names_checked
def train(fn: Any, *, workers: int = 1, batch_size: int = 2) -> tuple[int, int]:
    return workers, batch_size


def test_known_names_pass() -> None:
    assert train(None, workers=3) == (3, 2)
    assert train(fn=None, batch_size=5) == (1, 5)


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: train(None, worker=3), "workers"),  # type: ignore[call-arg]
        (lambda: train(None, batchSize=3), "batch_size"),  # type: ignore[call-arg]
        (lambda: ef.run(print, worker=2), "workers"),  # type: ignore[call-arg]
        (lambda: ef.run_parallel(print, task=2), "tasks"),  # type: ignore[call-arg]
        (lambda: ef.predict(None, None, input="x"), "inputs"),  # type: ignore
        (lambda: Context.dataset(SimpleNamespace(), feature="x"), "features"),  # type: ignore
        (lambda: ESTIMATOR(featureCol="x"), "featuresCol"),
        (lambda: ESTIMATOR(num_workers=2), "numWorkers"),
        (lambda: ESTIMATOR().setParams(epoch=2), "epochs"),
    ],
)
def test_a_misspelt_argument_is_a_type_error_that_names_the_right_one(call: Any, meant: str) -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument") as caught:
        call()
    assert isinstance(caught.value, ef.UnknownNameError)
    assert caught.value.fix == f"Did you mean {meant}?"


def test_a_name_like_no_other_lists_all() -> None:
    with pytest.raises(ef.UnknownNameError) as caught:
        train(None, zzz=1)  # type: ignore[call-arg]
    assert caught.value.fix == "Pass one of: workers, batch_size."


def test_set_params_sets_what_the_constructor_takes() -> None:
    stage = ESTIMATOR(epochs=2).setParams(epochs=5, model="m", callbacks=["c"], weightCol=None)
    assert (stage.getEpochs(), stage.model, stage.callbacks) == (5, "m", ["c"])
    assert not stage.isDefined("weightCol")


@pytest.mark.parametrize(
    ("key", "meant"), [("epochs", "epochs"), ("epoch", "epochs"), ("featureCol", "featuresCol")]
)
def test_a_map_of_params_by_text_is_refused_which_spark_would_ignore(key: str, meant: str) -> None:
    with pytest.raises(ef.UnknownNameError, match=f"Received: '{key}'") as caught:
        ESTIMATOR().fit(None, {key: 3})
    assert f"{{stage.{meant}: 3}}" in caught.value.fix
