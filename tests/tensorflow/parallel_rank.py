"""One rank of the data parallel tests: a process that does what it is told, line by line.

Many cases run in the same processes, since importing TensorFlow costs more than any of them.
"""
# ruff: noqa: BLE001 - Keras names the arguments of callbacks; the tests judge all errors

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from os import PathLike
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np

import tensorflow as tf
from emberflow.strategies.data_parallel.distribute import distribute
from emberflow.strategies.transport.collectives import start_collectives
from emberflow.strategies.transport.ring import Ring
from emberflow.strategies.transport.ring_joining import Listener
from tests.tensorflow import exchange_scenes, mirror_scenes, parallel_contract, parallel_scenes
from tests.tensorflow.parallel_cases import EVALUATED, Case, batches_of, dataset
from tests.tensorflow.parallel_term_cases import ALL_CASES


class Logs(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps what Keras reports after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps.append({name: float(value) for name, value in (logs or {}).items()})


class SwitchedOff:
    """A transport that returns its input: each rank trains alone."""

    failure = None

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def sum(self, tensors: list[Any]) -> list[Any]:
        return list(tensors)

    def average(self, head: Any, tensors: list[Any]) -> Any:
        return head, list(tensors)

    def gather(self, tensor: Any) -> Any:
        return tensor

    def close(self) -> None: ...


class Rank:
    """The rank's connections and commands."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.listener: Listener | None = None
        self.transports: dict[str, Any] = {}

    def listen(self) -> str:
        self.listener = Ring.listen("127.0.0.1")
        return self.listener.address

    def connect(
        self,
        name: str,
        *,
        addresses: list[str],
        key: str,
        receive_timeout: float,
        bucket_bytes: int | None,
        shares_memory: bool,
    ) -> None:
        assert self.listener is not None
        ring = self.transports[name] = Ring.connect(
            self.listener,
            rank=self.rank,
            addresses=addresses,
            key=bytes.fromhex(key),
            timeout=20,
            receive_timeout=receive_timeout,
            hosts=["here"] * len(addresses) if shares_memory else (),
        )
        if shares_memory:
            assert ring._host_sum is not None
            ring._host_sum.least = 0
        ring.bucket_bytes = bucket_bytes or ring.bucket_bytes

    def collectives(self, tf_config: str) -> None:
        self.transports["collectives"] = start_collectives(tf_config, receive_timeout=20)

    def train(self, case: str, transport: str, folder: str) -> None:
        ranks = 3 if transport == "ring3" else 2
        if transport == "off":
            self.transports["off"] = SwitchedOff(self.rank, ranks)
        together = self.transports.get(transport)
        result = train(
            ALL_CASES[case], together and (lambda model: distribute(model, together)), self.rank, folder
        )
        np.savez(f"{folder}/{case}-{transport}-{self.rank}.npz", **result)

    def scene(self, name: str, transport: str, folder: str) -> Any:
        modules = (exchange_scenes, mirror_scenes, parallel_scenes)
        scene = next(getattr(module, name) for module in modules if hasattr(module, name))
        return scene(self.transports[transport], folder)

    def broken_promises(self) -> list[str]:
        return parallel_contract.broken_promises()

    def close(self, name: str) -> None:
        self.transports.pop(name).close()


def train(
    case: Case, share: Callable[[Any], Any] | None, rank: int, folder: str | PathLike[str]
) -> dict[str, Any]:
    """Train one case; return all numbers that must not depend on the number of ranks.

    `share` distributes the model; without it one process trains on all rows.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(1 if share is None else 1 + rank)  # only the chief's weights are those of one
    model = case.build()
    if share is not None:
        assert share(model) is model
    mine = None if share is None else rank
    logs = Logs()
    fit = case.fit(str(folder), rank)
    callbacks = [*fit.pop("callbacks", []), logs]
    if case.validation:
        fit["validation_data"] = dataset(batches_of(case, case.validation, mine))
    batches = dataset(batches_of(case, case.steps, mine))
    history = model.fit(batches, epochs=case.epochs, callbacks=callbacks, verbose=0, **fit)
    result = {f"weight {place}": weight for place, weight in enumerate(model.get_weights())}
    result |= {f"state {place}": np.asarray(v) for place, v in enumerate(model.optimizer.variables)}
    result |= {f"epochs {name}": np.asarray(values) for name, values in history.history.items()}
    result |= {f"steps {name}": np.array([step[name] for step in logs.steps]) for name in logs.steps[0]}
    held_out_steps = EVALUATED[len(case.steps[0])] if case.evaluated is None else case.evaluated
    if model.loss is not None and held_out_steps:
        held_out = dataset(batches_of(case, held_out_steps, mine))
        evaluated = model.evaluate(held_out, return_dict=True, verbose=0)
        result |= {f"evaluate {name}": np.asarray(value) for name, value in evaluated.items()}
    result["bits"] = np.asarray(
        hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()
    )
    weights = {id(variable) for variable in model.weights}
    seeds = [np.asarray(v) for v in model.variables if id(v) not in weights]
    if seeds:
        result["seeds"] = np.stack(seeds)
    return result


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    # One thread on the chief: an op that waits for gradients that it keeps from being computed would block for ever.
    tf.config.threading.set_inter_op_parallelism_threads(1 if sys.argv[1] == "0" else 2)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    rank = Rank(int(sys.argv[1]))
    print(json.dumps({"value": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"value": getattr(rank, command.pop("do"))(**command)}
        except Exception as error:
            answer = {"error": type(error).__name__, "text": str(error), "trace": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
