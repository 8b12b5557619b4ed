"""Programs of spark-tensorflow-distributor: what a training function sees, which GPUs it has, what it returns."""

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow._driver.slots import check_slots
from spark_tensorflow_distributor import MirroredStrategyRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(400)]


def what_a_task_sees(word: str) -> dict[str, Any]:
    import os

    from pyspark import BarrierTaskContext, TaskContext

    context = BarrierTaskContext.get()
    context.barrier()
    me = context.partitionId()
    return {
        "me": me,
        "gathered": context.allGather(f"{word} {me}"),
        "hosts": [info.address.rpartition(":")[0] for info in context.getTaskInfos()],
        "gpus": context.allGather(os.environ["CUDA_VISIBLE_DEVICES"]),
        "tf_config": os.environ["TF_CONFIG"],
        "keras": os.environ["TF_USE_LEGACY_KERAS"],
        "is_task": TaskContext.get() is context and context.attemptNumber() == 0,
    }


def test_a_function_gets_its_barrier_context_and_environment(spark_cluster: "SparkSession") -> None:
    runner = MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True)
    assert (runner.sc, runner.get_num_tasks()) == (spark_cluster.sparkContext, 2)
    seen = runner.run(what_a_task_sees, word="task")
    assert (seen["me"], seen["gathered"], seen["gpus"]) == (0, ["task 0", "task 1"], ["", ""])
    assert len(seen["hosts"]) == 2
    assert all(seen["hosts"])
    config = json.loads(seen["tf_config"])
    assert [*config["cluster"]] == ["worker"]
    assert len(set(config["cluster"]["worker"])) == 2
    assert config["task"] == {"type": "worker", "index": 0}
    assert (seen["keras"], seen["is_task"]) == ("1", True)


def train() -> dict[str, Any]:
    """Train as the old README does: plain Keras in the strategy's scope."""
    import numpy as np
    from pyspark import BarrierTaskContext

    import tensorflow as tf

    rows = np.arange(32, dtype=np.float32).reshape(16, 2) / 32
    data = tf.data.Dataset.from_tensor_slices((rows, rows.sum(axis=1))).batch(8).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(0.1))
    history = model.fit(data.with_options(options), epochs=2, steps_per_epoch=2, verbose=0)
    weights = str([weight.tolist() for weight in model.get_weights()])
    return {
        "replicas": tf.distribute.get_strategy().num_replicas_in_sync,
        "keras": type(model).__module__.partition(".")[0],
        "loss": history.history["loss"],
        "weights": BarrierTaskContext.get().allGather(weights),
    }


@pytest.mark.full
def test_plain_keras_trains_in_the_scope_of_the_strategy(spark_cluster: "SparkSession") -> None:
    trained = MirroredStrategyRunner(num_slots=2, use_gpu=False).run(train)
    assert (trained["replicas"], trained["keras"]) == (2, "tf_keras")
    assert trained["loss"][1] < trained["loss"][0]
    assert len(set(trained["weights"])) == 1  # the same on both


@pytest.mark.full
def test_slots_are_gpus_of_all_tasks_together(spark_gpus: "SparkSession") -> None:
    for slots in (1, 3):
        runner = MirroredStrategyRunner(num_slots=slots, use_custom_strategy=True)
        assert runner.get_num_tasks() == slots  # the session gives each task one
        gpus = runner.run(what_a_task_sees, word="")["gpus"]
        assert len({*gpus}) == slots
        assert set(gpus) <= {"0", "1", "2", "3"}
    seen = MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True).run(
        what_a_task_sees, word=""
    )
    assert seen["gpus"] == ["", ""]


@pytest.mark.full
def test_an_error_of_the_function_has_its_traceback(spark_cluster: "SparkSession") -> None:
    def fail(step: int) -> None:
        raise KeyError(f"no step {step}")

    with pytest.raises(ef.NodeFailedError, match="no step 7"):
        MirroredStrategyRunner(num_slots=1, use_gpu=False, use_custom_strategy=True).run(fail, step=7)


@pytest.mark.full
def test_local_mode_runs_here_and_restores_the_environment(
    spark_cluster: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def train_here(gain: int) -> Any:
        calls.append(os.environ["CUDA_VISIBLE_DEVICES"])
        return lambda: gain  # cannot be pickled, and need not be

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "10,11,12")
    cpu = MirroredStrategyRunner(num_slots=1, local_mode=True, use_gpu=False, use_custom_strategy=True)
    assert cpu.run(train_here, gain=3)() == 3
    gpu = MirroredStrategyRunner(num_slots=2, local_mode=True, use_custom_strategy=True)
    gpu.sc = SimpleNamespace(resources={"gpu": SimpleNamespace(addresses=["0", "2"])})
    assert gpu.run(train_here, gain=4)() == 4
    assert calls == ["", "10,12"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "10,11,12"
    gpu.sc.resources["gpu"].addresses.pop()
    with pytest.raises(ValueError, match=r"2 slots were requested.*only 1"):
        gpu.run(train_here, gain=4)
    cpu._num_slots = 2
    with pytest.raises(ValueError, match="more than 1 CPU machine in local mode"):
        cpu.run(train_here, gain=4)


def test_slots_must_be_positive() -> None:
    with pytest.raises(ValueError, match="num_slots is set to 0 but cannot be less than or equal to 0"):
        MirroredStrategyRunner(num_slots=0)


@pytest.mark.full
def test_gpus_that_spark_does_not_know_are_refused(spark_cluster: "SparkSession") -> None:
    with pytest.raises(Exception, match=r"spark\.task\.resource\.gpu\.amount. was not found"):
        MirroredStrategyRunner(num_slots=1)


@pytest.mark.parametrize(
    ("resources", "visible", "expected"),
    [
        ({"gpu": ["0", "3"]}, None, ["0", "3"]),
        ({"gpu": ["0", "3"]}, "10,11,12,13", ["10", "13"]),
        ({"gpu": ["01"]}, None, "integers with no zero padding"),
        ({"gpu": ["1x"]}, None, "integers with no zero padding"),
        ({"gpu": ["4"]}, "10,11", "count within CUDA_VISIBLE_DEVICES"),
        ({"fpga": ["0"]}, None, "`gpu` was not found in the context resources"),
    ],
)
def test_addresses_become_what_cuda_understands(
    monkeypatch: pytest.MonkeyPatch, resources: Any, visible: str | None, expected: Any
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    given = {name: SimpleNamespace(addresses=addresses) for name, addresses in resources.items()}
    if isinstance(expected, list):
        assert MirroredStrategyRunner._get_gpus_owned(given, "gpu") == expected
        return
    with pytest.raises(ValueError, match=expected):
        MirroredStrategyRunner._get_gpus_owned(given, "gpu")


class Conf:
    def __init__(self, **settings: str) -> None:
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}

    def getConf(self) -> Any:  # noqa: N802 - Spark's name
        return self._settings


@pytest.mark.parametrize(("amount", "tasks"), [("1", 6), ("4", 2), ("0", None), ("0.5", None)])
def test_tasks_are_counted_by_their_gpus(amount: str, tasks: int | None) -> None:
    runner: Any = object.__new__(MirroredStrategyRunner)
    runner.sc = Conf(spark_task_resource_gpu_amount=amount)
    runner._use_gpu, runner._num_slots, runner._gpu_resource_name = True, 6, "gpu"
    if tasks:
        assert runner.get_num_tasks() == tasks
        return
    with pytest.raises(ValueError, match="should not have a value less than 1"):
        runner.get_num_tasks()


def test_too_few_slots_are_told_in_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    runner: Any = object.__new__(MirroredStrategyRunner)
    runner.sc, runner._spark = Conf(spark_task_resource_gpu_amount="4"), None
    runner._use_gpu, runner._num_slots, runner._gpu_resource_name = True, 12, "gpu"
    runner._local_mode, runner._use_custom_strategy, runner._num_tasks = False, True, 3
    monkeypatch.setattr(ef, "run", lambda *_, workers, **__: check_slots(2, workers, 0, "spark://host"))
    with pytest.raises(ef.ClusterError) as refused:
        runner.run(print)
    assert refused.value.fix.startswith("Pass num_slots=8 or fewer")
    assert "executor_timeout" not in refused.value.fix


def test_unencrypted_traffic_needs_permission_on_an_encrypted_cluster() -> None:
    runner: Any = object.__new__(MirroredStrategyRunner)
    runner.sc = Conf(spark_ssl_enabled="true")
    with pytest.raises(Exception, match="This cluster has TLS encryption enabled"):
        runner._check_encryption()
    runner.sc = Conf(spark_ssl_enabled="TRUE", tensorflow_spark_distributor_ignoreSsl="true")
    warnings: list[Any] = []
    runner._logger = SimpleNamespace(warning=lambda *text: warnings.append(text))
    runner._check_encryption()
    assert len(warnings) == 1
