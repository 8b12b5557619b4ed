"""`launch`: a function once, or once for each set of hyperparameters, in parallel on the executors."""

import functools
import inspect
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import emberflow as ef
from emberflow_compat.classic_sessions import classic_context
from hops import hdfs
from hops.trial import Trial, Trials, run_trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("emberflow")
_runs = itertools.count()


def launch(
    spark_session: "SparkSession",
    map_fun: Callable[..., Any],
    args_dict: Mapping[str, Sequence[Any]] | None = None,
) -> str:
    """Call a function on the executors, each call in a process of its own; calls do not wait for each other.

    Args:
        spark_session: The session.
        map_fun: The function.
        args_dict: The values of each of its arguments, lists of equal length: call i has the i-th of each. If left
            out, the function is called once, without arguments.

    Returns:
        The folder of this launch. It has a folder for each call, with what the call wrote to `tensorboard.logdir`
        and an ``outcome.json``.

    Raises:
        ConfigError: The lists differ in length, or are not those of the function's arguments; a ValueError.
        NodeFailedError: Every call failed. A call that fails beside others is a warning.
        ClusterError: The session is one of Spark Connect.
    """
    context = classic_context(spark_session, "tflauncher.launch", native="ef.run_parallel(fn, tasks=n)")
    calls = calls_of(map_fun, args_dict)
    root = f"{hdfs.project_path()}Logs/TensorFlow/{context.applicationId}/runId.{next(_runs)}"
    trials = Trials(
        function=map_fun,
        each=[Trial(folder=f"{root}/{name}", arguments=arguments) for name, arguments in calls.items()],
        project_path=hdfs.project_path(),
    )
    gpus = int(float(context.getConf().get("spark.task.resource.gpu.amount") or 0))
    try:
        results: Sequence[ef.Result | None] = ef.run_parallel(
            functools.partial(run_trial, trials), tasks=len(calls), gpus=gpus, spark=spark_session
        )
        lost = ""
    except ef.NodeError as failure:  # a process that was killed, or a folder that cannot be written
        if not any(failure.results):
            raise
        results, lost = failure.results, str(failure)
    errors = [lost if result is None else result.value for result in results]
    failed = {name: error for name, error in zip(calls, errors, strict=True) if error}
    if len(failed) == len(calls):
        raise ef.NodeFailedError(
            f"No trial succeeded. Received: {len(failed)} that failed; the first one:\n{next(iter(failed.values()))}",
            fix=f"Correct the function; all tracebacks are in {root}.",
        )
    for name, error in failed.items():
        log.warning(
            "Trial %s failed; the others are not affected. Its files are in %s/%s\n%s",
            name,
            root,
            name,
            error,
        )
    return root


def calls_of(
    function: Callable[..., Any], args_dict: Mapping[str, Sequence[Any]] | None
) -> dict[str, dict[str, Any]]:
    """Return the arguments of each call, by the name of its folder.

    >>> calls_of(lambda rate, units: None, {"units": [8, 8], "rate": [0.1, 0.2]})
    {'rate=0.1.units=8': {'rate': 0.1, 'units': 8}, 'rate=0.2.units=8': {'rate': 0.2, 'units': 8}}
    """
    if not args_dict:
        return {"no_args": {}}
    lengths = {name: len(values) for name, values in args_dict.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise ef.ConfigError(
            f"Length of each function argument list must be equal, and 1 or more. Received: lengths={lengths}.",
            fix="Give each argument as many values as there are trials, such as by util.grid_params.",
        )
    parameters = inspect.signature(function).parameters
    needed = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
    if not needed <= set(args_dict) <= set(parameters):
        raise ef.ConfigError(
            f"args_dict must have a list for each argument of the function. Received: {sorted(args_dict)}, "
            f"the function has {list(parameters)}.",
            fix="Name the lists after the function's arguments.",
        )
    names = [name for name in parameters if name in args_dict]
    calls: dict[str, dict[str, Any]] = {}
    for place in range(next(iter(lengths.values()))):
        arguments = {name: args_dict[name][place] for name in names}
        folder = ".".join(f"{name}={value}" for name, value in arguments.items()).replace("/", "_")
        calls[f"{folder}.{place}" if folder in calls else folder] = arguments
    return calls
