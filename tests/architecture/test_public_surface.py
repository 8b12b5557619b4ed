"""What `import emberflow` shows, and what it costs."""

import inspect
import subprocess
import sys

import emberflow

HEAVY = {"tensorflow", "keras", "pyspark", "pyarrow", "numpy", "pandas"}


def test_public_names_are_exactly_all() -> None:
    public = {
        name
        for name, value in vars(emberflow).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    later = set(emberflow._LATER) | {"deploy", "tfrecord"}
    assert public | later == set(emberflow.__all__)
    assert list(emberflow.__all__) == sorted(emberflow.__all__)


def test_every_public_name_has_a_docstring() -> None:
    for name in emberflow.__all__:
        assert inspect.getdoc(getattr(emberflow, name)), name


def test_the_import_brings_no_heavy_module() -> None:
    code = f"import sys, emberflow; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_estimators_nodes_do_not_wait_for_spark() -> None:
    code = "import sys, emberflow.ml.trainers; print('pyspark' in sys.modules, 'tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_options_of_run_can_only_be_given_by_name() -> None:
    parameters = list(inspect.signature(emberflow.run).parameters.values())
    assert [p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY] == ["fn"]
