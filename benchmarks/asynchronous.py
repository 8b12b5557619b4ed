"""What does an exchange with the parameter server cost, and what does a slow worker cost the others?

1. Seconds to push and pull 10 million float32 parameters on loopback: one worker, a server of its own process.
2. Three nodes train on handwritten digits. A step waits 100 ms, on one of them 200, so that two cores are enough for
   all: steps a second of all nodes together until the first is done, seconds until the end, and test accuracy over
   time, for synchronous training, parameter servers and periodic averaging.

``python -m benchmarks.asynchronous [REPEATS]``
"""

import functools
import secrets
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.measure import alternate, print_result, summary
from emberflow.strategies.periodic.client import PeriodicClient
from emberflow.strategies.periodic.value_layout import VariableSpec

PARAMETERS = 10_000_000
ROUNDS = 20
NODES = 3
STEP = 0.100  # seconds; the slow node's is twice that
EPOCHS = 5
BATCH = 16
STRATEGIES = ("data_parallel", "parameter_server", "periodic")


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rounds = exchanges()
    print(f"push and pull of {PARAMETERS} float32: {rounds}", flush=True)
    print_result("asynchronous", {"round_seconds": rounds, **stragglers(repeats)})


def exchanges() -> dict[str, Any]:
    """Measure rounds of push and pull."""
    key = secrets.token_bytes(32)
    command = [sys.executable, "-m", "benchmarks.asynchronous_side"]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(key.hex() + "\n")
        server.stdin.flush()
        client = PeriodicClient([server.stdout.readline().strip()], key=key, rank=0)
        values = [np.random.default_rng(0).normal(size=PARAMETERS).astype(np.float32)]
        client.open([VariableSpec(size=PARAMETERS, dtype="float32", rule="delta")], values, "delta")
        seconds = []
        for _ in range(ROUNDS + 1):
            started = time.perf_counter()
            values, _ = client.exchange(values)
            seconds.append(time.perf_counter() - started)
        client.close()
        server.stdin.close()
    return summary(seconds[1:])  # the first touches memory for the first time


def stragglers(repeats: int) -> dict[str, Any]:
    """Train in each way in turn."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(f"local[{NODES + 1}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = digit_rows(spark)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in STRATEGIES}
    sides = {name: functools.partial(measure, name, spark, rows, runs[name]) for name in STRATEGIES}
    rates = alternate(sides, repeats)
    spark.stop()
    return {
        name: {
            "steps_a_second": summary(rates[name], 1),
            "seconds": summary([run["seconds"] for run in runs[name]], 1),
            "accuracy": summary([run["accuracy"] for run in runs[name]], 4),
            "accuracy_over_time": runs[name][-1]["curve"],
        }
        for name in STRATEGIES
    }


def measure(strategy: str, spark: Any, rows: Any, runs: list[dict[str, Any]]) -> float:
    """Train once; return steps a second of all nodes together while all had rows."""
    import emberflow as ef

    ps = 0 if strategy == "data_parallel" else 1
    result = ef.run(
        functools.partial(train, strategy),
        workers=NODES,
        ps=ps,
        strategy=strategy,
        data=rows,
        spark=spark,
        verbose=False,
    )
    told = [metric for metric in result.metrics if "began" in metric.values]
    began = min(metric.values["began"] for metric in told)
    steps: dict[int, list[float]] = {}
    for metric in result.metrics:
        for _ in range(int(metric.values.get("count", 0))):
            steps.setdefault(metric.rank, []).append(metric.values["at"] - began)
    first_end = min(max(times) for times in steps.values())
    rate = sum(at <= first_end for times in steps.values() for at in times) / first_end
    curve = [(round(at - began, 1), round(accuracy, 4)) for at, accuracy in result.value["curve"]]
    runs.append({"seconds": curve[-1][0], "accuracy": curve[-1][1], "curve": curve})
    print(f"{strategy}: {rate:.1f} steps/s, {curve[-1]}", flush=True)
    return rate


def train(strategy: str, ctx: Any) -> dict[str, Any]:
    """Train on one node; the chief tests the model after each of its epochs."""
    clock = Clock(ctx, STEP * (2 if ctx.rank == NODES - 1 else 1))
    curve: list[tuple[float, float]] = []
    callbacks = [tester(curve)] if ctx.is_chief else []
    rows = functools.partial(
        ctx.dataset, "train", features="image", label="label", batch_size=BATCH, shapes={"image": (64,)}
    )
    if strategy == "parameter_server":
        clock.slow_down_steps_for_the_coordinator()
        trainer = ctx.coordinate(rows)
        with trainer.scope():
            model = digit_model()
        trainer.fit(model, epochs=EPOCHS, callbacks=callbacks)
    elif strategy == "periodic":
        model = digit_model()
        sync = ctx.periodic(model, interval=10, combiner="mean")
        model.fit(rows(), epochs=EPOCHS, verbose=0, callbacks=[clock.callback(), sync, *callbacks])
        sync.finish()
    else:
        model = ctx.distribute(digit_model())
        model.fit(rows(), epochs=EPOCHS, verbose=0, callbacks=[clock.callback(), *callbacks])
    for callback in callbacks:
        callback.set_model(model)
        callback.on_epoch_end(EPOCHS)
    clock.tell()
    return {"curve": curve}


def tester(curve: list[tuple[float, float]]) -> Any:
    """Return a callback that notes time and test accuracy after each epoch."""
    import keras

    _, _, images, labels = digits()

    class Test(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, *_: object, **__: object) -> None:
            copy = digit_model()
            copy.set_weights(self.model.get_weights())
            guess = copy(images, training=False).numpy().argmax(1)
            curve.append((time.time(), float((guess == labels).mean())))

    return Test()


class Clock:
    """Waits in each step of this node, and tells the driver how many there were, ten times a second."""

    def __init__(self, ctx: Any, seconds: float) -> None:
        self._ctx = ctx
        self._seconds = seconds
        self._count = 0
        self._told = 0.0

    def callback(self) -> Any:
        """Return what waits in each step of `fit`."""
        import keras

        return keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: self.step())

    def slow_down_steps_for_the_coordinator(self) -> None:
        """Wait in each step that this node runs for the chief, whosever rows it has."""
        from emberflow.strategies.parameter_server.row_sources import RowSource

        fetch = RowSource.fetch

        def slow_fetch(source, number):  # type: ignore[no-untyped-def]
            batch = fetch(source, number)
            if batch[1]:
                self.step()
            return batch

        RowSource.fetch = slow_fetch  # type: ignore[method-assign]

    def step(self) -> None:
        """Wait, and count."""
        if not self._told:
            self._told = time.time()
            self._ctx.report(began=self._told)
        time.sleep(self._seconds)
        self._count += 1
        if time.time() - self._told > 0.1:
            self.tell()

    def tell(self) -> None:
        """Send the count."""
        self._told = time.time()
        self._ctx.report(count=self._count, at=self._told)
        self._count = 0


def digits() -> tuple[Any, Any, Any, Any]:
    from emberflow.cli.demo_digits import load_digits

    data = load_digits()
    flat = [images.reshape(len(images), 64) for images in (data.images, data.test_images)]
    return flat[0], data.labels, flat[1], data.test_labels


def digit_rows(spark: Any) -> Any:
    images, labels, _, _ = digits()
    rows = [(image.tolist(), int(label)) for image, label in zip(images, labels, strict=True)]
    return spark.createDataFrame(rows, "image array<float>, label long").repartition(NODES)


def digit_model() -> Any:
    import keras

    keras.utils.set_random_seed(3)
    layers = [keras.layers.Input((64,)), keras.layers.Dense(128, activation="relu")]
    model = keras.Sequential([*layers, keras.layers.Dense(10, activation="softmax")])
    model.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


if __name__ == "__main__":
    main()
