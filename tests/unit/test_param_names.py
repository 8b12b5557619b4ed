"""Errors of a run name the Params that a user of an estimator types."""

import pickle

import pytest

from emberflow.config import RunConfig
from emberflow.errors import ClusterError, ConfigError, NodeFailedError
from emberflow.ml.param_names import params_named


def test_a_strategy_without_servers_names_num_ps() -> None:
    with pytest.raises(ConfigError) as refused, params_named():
        RunConfig(workers=2, strategy="periodic")
    assert "Received: strategy='periodic', numPs=0" in str(refused.value)
    assert refused.value.fix == "Pass numPs=1."
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_too_few_slots_name_num_workers() -> None:
    with (
        pytest.raises(ClusterError, match="Pass numWorkers=2 or fewer; raise executorTimeout"),
        params_named(),
    ):
        raise ClusterError(
            "The run needs 3 task slots for 3 workers.",
            fix="Pass workers=2 or fewer; raise executor_timeout.",
        )


def test_the_traceback_of_a_function_stays_as_it_is() -> None:
    with pytest.raises(NodeFailedError) as failed, params_named():
        raise NodeFailedError("Your function raised: build(workers=2)", fix="Run it with workers=1.", rank=1)
    assert failed.value.problem == "Your function raised: build(workers=2)"
    assert (failed.value.fix, failed.value.rank) == ("Run it with numWorkers=1.", 1)


def test_paths_and_settings_are_no_names() -> None:
    with pytest.raises(ConfigError) as refused, params_named():
        raise ConfigError("/data/checkpoint_dir/1 and spark.executor.ps=1", fix="my_ps=1")
    assert str(refused.value) == "/data/checkpoint_dir/1 and spark.executor.ps=1\nFix: my_ps=1"
