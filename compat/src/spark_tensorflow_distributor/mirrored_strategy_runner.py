"""`MirroredStrategyRunner`: a training function on all slots of a Spark cluster, or on the driver."""

import functools
import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext

import emberflow as ef
from emberflow_compat import deadlines
from emberflow_compat.classic_sessions import active_session, classic_context
from emberflow_compat.keras_choice import choice_for_nodes
from spark_tensorflow_distributor.node_program import NodeProgram, run_in_node, run_program

IGNORE_SSL = "tensorflow.spark.distributor.ignoreSsl"
GPUS = "CUDA_VISIBLE_DEVICES"


class MirroredStrategyRunner:
    """Runs a TensorFlow function on a Spark cluster, one process per slot, all started together.

    Args:
        num_slots: How many GPUs train in all, or without GPUs how many Spark tasks.
        local_mode: Run the function in this process instead of on the executors.
        use_gpu: Train on GPUs that Spark schedules.
        gpu_resource_name: Spark's name for them, as in ``spark.task.resource.NAME.amount``.
        use_custom_strategy: The function makes its own ``tf.distribute`` strategy. Otherwise it is called in the
            scope of a MultiWorkerMirroredStrategy.

    Attributes:
        sc: The Spark context.
    """

    def __init__(
        self,
        *,
        num_slots: int,
        local_mode: bool = False,
        use_gpu: bool = True,
        gpu_resource_name: str = "gpu",
        use_custom_strategy: bool = False,
    ) -> None:
        if num_slots <= 0:
            raise ef.ConfigError(
                f"num_slots is set to {num_slots} but cannot be less than or equal to 0. "
                f"Received: num_slots={num_slots!r}.",
                fix="Pass num_slots=1 or more.",
            )
        self._logger = logging.getLogger(type(self).__name__)
        self._num_slots = num_slots
        self._local_mode = local_mode
        self._use_gpu = use_gpu
        self._gpu_resource_name = gpu_resource_name
        self._use_custom_strategy = use_custom_strategy
        self._spark = active_session()
        self.sc = classic_context(
            self._spark, type(self).__name__, native=f"ef.run(train_fn, workers={num_slots})"
        )
        self._num_tasks = None if local_mode else self.get_num_tasks()

    def get_num_tasks(self) -> int:
        """Return how many Spark tasks train: enough for all slots, by the GPUs that each task has."""
        return math.ceil(self._num_slots / self._gpus_of_a_task()) if self._use_gpu else self._num_slots

    def run(self, train_fn: Callable[..., Any], **kwargs: Any) -> Any:
        """Call the function on all slots at once.

        Args:
            train_fn: The function. It may call `pyspark.BarrierTaskContext.get`, and reads its GPUs from
                CUDA_VISIBLE_DEVICES.
            **kwargs: Its arguments.

        Returns:
            What the first of them returned; in local mode, what the only one returned.
        """
        if self._local_mode:
            with _variable_set(GPUS, ",".join(self._gpus_of_driver())):
                return self._run_tensorflow_program(train_fn, self._use_custom_strategy, **kwargs)
        self._check_encryption()
        program = NodeProgram(
            keras=choice_for_nodes(),
            train_fn=train_fn,
            kwargs=kwargs,
            num_slots=self._num_slots,
            use_gpu=self._use_gpu,
            gpu_resource_name=self._gpu_resource_name,
            use_custom_strategy=self._use_custom_strategy,
        )
        gpus = self._gpus_of_a_task() if self._use_gpu else 0
        with _slots_named(gpus or 1):
            return ef.run(
                functools.partial(run_in_node, program),
                workers=self._num_tasks,
                gpus=gpus,
                gpu_resource=self._gpu_resource_name,
                transport="ring",  # for the barrier context; TensorFlow's servers belong to the program
                start_timeout=deadlines.BARRIER_START_TIMEOUT,
                executor_timeout=deadlines.BARRIER_EXECUTOR_TIMEOUT,
                exchange_timeout=deadlines.BARRIER_TIMEOUT,
                allow_unencrypted=self._get_conf_boolean(self.sc, IGNORE_SSL, "false"),
                spark=self._spark,
            ).value

    def _gpus_of_a_task(self) -> int:
        key = f"spark.task.resource.{self._gpu_resource_name}.amount"
        amount = self.sc.getConf().get(key)
        if amount is None:
            raise ef.ClusterError(
                "Your cluster might not have Spark GPU-aware scheduling enabled, please contact your cluster "
                f"administrator. The conf `{key}` was not found in the Spark configuration. "
                f"Received: gpu_resource_name={self._gpu_resource_name!r}, use_gpu=True.",
                fix=f"Start the session with {key}=1, or pass use_gpu=False.",
            )
        if not re.fullmatch(r"\s*[1-9]\d*\s*", amount):
            raise ef.ConfigError(
                f"The Spark conf `{key}` has a value of {amount} but it should not have a value less than 1. "
                f"Received: {key}={amount}.",
                fix=f"Start the session with {key}=1 or another whole number.",
            )
        return int(amount)

    def _gpus_of_driver(self) -> Sequence[str]:
        """Return the GPUs that a local run uses."""
        if not self._use_gpu:
            if self._num_slots > 1:
                raise ef.ConfigError(
                    "Cannot run with more than 1 CPU machine in local mode. "
                    f"Received: num_slots={self._num_slots}, local_mode=True, use_gpu=False.",
                    fix="Pass num_slots=1.",
                )
            return ()
        owned = self._get_gpus_owned(self.sc.resources, self._gpu_resource_name)
        if self._num_slots > len(owned):
            raise ef.ConfigError(
                f"{self._num_slots} slots were requested for local training with GPU training but only {len(owned)} "
                f"GPUs were available. Received: num_slots={self._num_slots}.",
                fix=f"Pass num_slots={len(owned) or 1}, or raise "
                f"spark.driver.resource.{self._gpu_resource_name}.amount.",
            )
        return owned[: self._num_slots]

    @staticmethod
    def _get_gpus_owned(resources: Mapping[str, Any], gpu_resource_name: str) -> list[str]:
        """Return the GPUs of a task or of the driver, as CUDA_VISIBLE_DEVICES must name them.

        Where that variable is set already, Spark's addresses count within it.
        """
        if gpu_resource_name not in resources:
            settings = [
                f"spark.{owner}.resource.{gpu_resource_name}"
                for owner in ("task", "worker", "executor", "driver")
            ]
            raise ef.ConfigError(
                f"The provided GPU resource name `{gpu_resource_name}` was not found in the context resources. "
                f"Received: resources={sorted(resources)}.",
                fix=f"Set {', '.join(settings)}, each with .amount, and a discovery script.",
            )
        addresses = list(resources[gpu_resource_name].addresses)
        if not all(re.fullmatch("0|[1-9][0-9]*", address) for address in addresses):
            raise ef.ConfigError(
                f"Found GPU addresses {addresses} which are not all in the correct format for CUDA_VISIBLE_DEVICES, "
                f"which requires integers with no zero padding. Received: addresses={addresses}.",
                fix="Let the discovery script print addresses such as 0 and 1.",
            )
        if GPUS not in os.environ:
            return addresses
        names = os.environ[GPUS].split(",")
        if any(int(address) >= len(names) for address in addresses):
            raise ef.ConfigError(
                f"Spark's GPU addresses count within {GPUS} where that is set. "
                f"Received: addresses={addresses}, {GPUS}={os.environ[GPUS]}.",
                fix=f"Unset {GPUS}, or let the discovery script count within it.",
            )
        return [names[int(address)] for address in addresses]

    @staticmethod
    def _run_tensorflow_program(
        train_fn: Callable[..., Any], use_custom_strategy: bool, **kwargs: Any
    ) -> Any:
        return run_program(train_fn, use_custom_strategy, kwargs)

    @staticmethod
    def _get_conf_boolean(sc: SparkContext, key: str, default_value: str) -> bool:
        value = sc.getConf().get(key, default_value)
        if value.lower() not in ("true", "false"):
            raise ef.ConfigError(
                f"Expected a boolean conf value. Received: {key}={value!r}.", fix=f"Set {key}=true or false."
            )
        return value.lower() == "true"

    def _check_encryption(self) -> None:
        """Refuse to send values unencrypted where Spark encrypts, unless a setting allows it."""
        if not self._get_conf_boolean(self.sc, "spark.ssl.enabled", "false"):
            return
        if not self._get_conf_boolean(self.sc, IGNORE_SSL, "false"):
            raise ef.EncryptionError(
                f"This cluster has TLS encryption enabled; however, {type(self).__name__} does not support data "
                "encryption in transit: TensorFlow's own servers cannot encrypt. Received: spark.ssl.enabled=true.",
                fix=f"Use ef.run with ctx.distribute, which is encrypted; or set {IGNORE_SSL}=true, if model "
                "parameters may be sent between nodes unencrypted.",
            )
        self._logger.warning(
            "This cluster has TLS encryption enabled, and %s=true: model parameters are sent between nodes "
            "unencrypted.",
            IGNORE_SSL,
        )


@contextmanager
def _slots_named(gpus: int) -> Iterator[None]:
    """Let the fix of an error name `num_slots`, GPUs of all workers together, instead of workers."""
    try:
        yield
    except ef.EmberflowError as error:
        slots = re.sub(r"\bworkers=(\d+)", lambda found: f"num_slots={int(found[1]) * gpus}", error.fix)
        error.reword(error.problem, slots.replace("raise executor_timeout", "run it again"))
        raise


@contextmanager
def _variable_set(name: str, value: str) -> Iterator[None]:
    """Set an environment variable of this process for the length of the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
