"""KerasModel as far as it needs neither Spark's JVM nor TensorFlow."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from emberflow.ml.estimator import KerasEstimator
from emberflow.ml.model_outputs import ModelOutput
from emberflow.ml.model import KerasModel
from emberflow.ml.training import Trained

output = ModelOutput(output="out", kind="value", is_probability=False)
model = KerasModel(trained=Trained(keras_file=b"no model", history={"loss": [1.0]}, outputs=(output,)))
copy = model.setPredictionCol("guess").copy()
assert copy.getPredictionCol() == "guess"
assert copy.history == {"loss": [1.0]}
assert not copy.isSet("batchSize")
fitted = KerasEstimator(model=len, batchSize=8, predictionCol="guess")._model_of(model.trained)
assert fitted.getPredictionCol() == "guess"
assert not fitted.isSet("batchSize")  # that of the training would be slow
print({"tensorflow", "keras"} & set(sys.modules))
"""

SAVING = """
import io, sys, zipfile
from pathlib import Path
from emberflow.ml.model import KerasModel
from emberflow.ml.training import Trained

archive = io.BytesIO()
with zipfile.ZipFile(archive, "w") as files:
    files.writestr("saved_model.pb", "graph")
    files.writestr("variables/variables.index", "index")
trained = Trained(keras_file=b"no model", history={}, outputs=(), saved_model=archive.getvalue())
model = KerasModel(trained=trained)
model.save(sys.argv[1] + "/saved")
model.publish(sys.argv[1] + "/versions")
for folder in ("saved/saved_model", "versions/1"):
    assert Path(sys.argv[1], folder, "saved_model.pb").read_text() == "graph"
    assert Path(sys.argv[1], folder, "variables", "variables.index").read_text() == "index"
print({"tensorflow", "keras"} & set(sys.modules))
"""


def test_what_the_chief_exported_is_saved_and_published_without_tensorflow(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SAVING, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "set()"


def test_a_model_is_not_loaded_before_it_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "set()"
