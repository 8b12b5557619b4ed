"""KerasModel as far as it needs neither Spark's JVM nor TensorFlow."""

import subprocess
import sys

PROGRAM = """
import sys
from emberflow.ml.model_outputs import ModelOutput
from emberflow.ml.model import KerasModel
from emberflow.ml.training import Trained

output = ModelOutput(output="out", kind="value", is_probability=False)
model = KerasModel(trained=Trained(keras_file=b"no model", history={"loss": [1.0]}, outputs=(output,)))
copy = model.setPredictionCol("guess").copy()
assert copy.getPredictionCol() == "guess"
assert copy.history == {"loss": [1.0]}
assert copy.extractParamMap()[copy.batchSize] == 1024
print({"tensorflow", "keras"} & set(sys.modules))
"""


def test_a_model_is_not_loaded_before_it_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "set()"
