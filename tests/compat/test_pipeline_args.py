"""The arguments and Params of a pipeline, without a Spark session."""

import argparse
from typing import Any

import pytest

from tensorflowonspark import pipeline
from tensorflowonspark.pipeline import HasBatchSize, HasSteps, Namespace, TFParams, TFTypeConverters


def test_a_namespace_of_everything() -> None:
    given = {"text": "foo", "number": 1, "list": [1, 2]}
    for source in (given, argparse.Namespace(**given), Namespace(given)):
        found = Namespace(source)
        assert (found.text, found.number, found.list) == ("foo", 1, [1, 2])  # type: ignore[attr-defined]
        assert "text" in found
        assert "other" not in found
        assert found == Namespace(given)
    assert Namespace(["--foo", "1"]).argv == ["--foo", "1"]
    with pytest.raises(Exception, match="Unsupported Namespace args"):
        Namespace(3)


def test_params_are_laid_over_arguments() -> None:
    class Stage(TFParams, HasBatchSize, HasSteps):
        def __init__(self, args: Any) -> None:
            super().__init__()
            self.args = args

    args = Namespace({"a": 1, "steps": 3})
    merged = Stage(args).setBatchSize(10).setSteps(100).merge_args_params()
    assert merged == Namespace({"a": 1, "batch_size": 10, "steps": 100})
    assert args == Namespace({"a": 1, "steps": 3})


def test_only_a_dict_is_a_mapping() -> None:
    assert TFTypeConverters.toDict({"a": "b"}) == {"a": "b"}
    with pytest.raises(TypeError, match="OrderedDict"):
        TFTypeConverters.toDict([("a", "b")])


def test_batches_of_rows_by_tensor() -> None:
    rows = [(1, "a"), (2, "b"), (3, "c")]
    assert list(pipeline.yield_batch(rows, 2, 2)) == [[[1, 2], ["a", "b"]], [[3], ["c"]]]
