"""A program of its own: saves a KerasModel over another one and kills itself at a chosen moment.

``python -m tests.tensorflow.save_and_die PATH EVENT COUNT``: dies when it does EVENT (``open`` or ``os.rename``, as
Python's audit hooks name them) for the COUNT-th time beside or below PATH, counted after the first version is saved.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from emberflow.ml.model import KerasModel
from emberflow.ml.model_outputs import ModelOutput
from emberflow.ml.training import Trained, file_of
from tests.spark.keras_models import flower_model


def model_of_version(number: int) -> KerasModel:
    output = ModelOutput(output="output_0", kind="classes", is_probability=True)
    keras_file = file_of(flower_model(seed=number))
    return KerasModel(
        trained=Trained(keras_file=keras_file, history={"version": [number]}, outputs=(output,))
    )


def die_at(folder: str, event: str, count: int) -> None:
    left = [count]

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        if name != event or not str(arguments[0]).startswith(folder):
            return
        if name == "open" and not set(str(arguments[1])) & set("wxa"):
            return
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def main() -> None:
    path, event, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    first, second = model_of_version(1), model_of_version(2)
    second.keras()
    first.write().save(path)
    die_at(str(Path(path).parent), event, count)
    second.write().overwrite().save(path)
    print("saved")


if __name__ == "__main__":
    main()
