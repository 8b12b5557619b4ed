"""Which Python our tasks name, with a stand-in for Spark's session."""

import functools
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from emberflow._driver import interpreter

OTHER = "/opt/other/bin/python"


class Context:
    """What is asked of a SparkContext."""

    def __init__(self, master: str, program: str = "python3", **settings: str) -> None:
        self.master = master
        self.pythonExec = program
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return self._settings


class Frame:
    """Notes the Python that a function made now would run by."""

    def __init__(self, context: Context) -> None:
        self.sparkSession = self
        self.sparkContext = context
        self.named: list[str] = []

    def mapInArrow(self, task: Any, schema: str, *, barrier: bool) -> str:  # noqa: N802
        self.named.append(self.sparkContext.pythonExec)
        if schema == "wrong":
            raise ValueError(schema)
        return "made"


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (Context("local[2]"), sys.executable),
        (Context("local-cluster[2,1,1024]"), sys.executable),
        (Context("local[2]", OTHER), OTHER),  # PYSPARK_PYTHON when the session started
        (Context("local[2]", spark_pyspark_python=OTHER), OTHER),
        (Context("spark://host:7077"), "python3"),
        (Context("yarn"), "python3"),
    ],
)
def test_the_drivers_python_is_named_only_where_executors_are_here_and_nobody_chose(
    context: Context, expected: str
) -> None:
    frame, before, environment = Frame(context), context.pythonExec, dict(os.environ)
    assert interpreter.map_in_arrow(frame, len, "id long") == "made"
    with pytest.raises(ValueError, match="wrong"):
        interpreter.map_in_arrow(frame, len, "wrong")
    assert frame.named == [expected] * 2
    assert context.pythonExec == before, "what Spark's own functions run by must not change"
    assert dict(os.environ) == environment


def test_an_explicit_choice_stands_even_if_it_is_python3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    frame = Frame(Context("local[2]"))
    interpreter.map_in_arrow(frame, len, "id long")
    assert frame.named == ["python3"]


def test_threads_that_make_tasks_at_the_same_time_do_not_undo_each_other() -> None:
    context = Context("local[2]")
    inside, done = threading.Event(), threading.Event()

    class Slow(Frame):
        def mapInArrow(self, task: Any, schema: str, *, barrier: bool) -> str:  # noqa: N802
            inside.set()
            done.wait(0.2)  # the other thread has time to come between, were it let
            return super().mapInArrow(task, schema, barrier=barrier)

    frames = [Slow(context), Frame(context)]
    threads = [
        threading.Thread(target=interpreter.map_in_arrow, args=(frame, len, "id long")) for frame in frames
    ]
    threads[0].start()
    assert inside.wait(5)
    threads[1].start()
    for thread in threads:
        thread.join(5)
    assert [frame.named for frame in frames] == [[sys.executable]] * 2
    assert context.pythonExec == "python3"


def test_a_python_without_emberflow_names_itself_and_the_drivers(tmp_path: Path) -> None:
    """What starts a task travels by value: a bare Python can read it, with what PySpark brings along."""
    (tmp_path / "cloudpickle").symlink_to(Path(cloudpickle.__file__).parent)
    task = cloudpickle.dumps(interpreter.fix_for)  # any function of emberflow
    order = functools.partial(interpreter._start, task, "3.99 (/driver)", "export A=B")
    bare = f"{sys.base_prefix}/bin/python3.{sys.version_info[1]}"
    done = subprocess.run(
        [bare, "-c", "import pickle, sys; pickle.loads(sys.stdin.buffer.read())(iter(()))"],
        input=cloudpickle.dumps(order),
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
    )
    said = done.stderr.decode()
    assert "has no module emberflow" in said
    assert f"({bare}) on {socket.gethostname()}" in said
    assert "the driver's Python 3.99 (/driver).\nFix: export A=B" in said


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("local[2]", f"export PYSPARK_PYTHON={sys.executable}"),
        ("yarn", "spark-submit --archives environment.tar.gz#environment"),
        ("spark://host:7077", "spark-submit --conf spark.pyspark.python="),
        (None, 'spark.conf.set("spark.sql.execution.pyspark.python"'),
    ],
)
def test_the_fix_can_be_typed(master: str | None, words: str) -> None:
    assert words in interpreter.fix_for(master)
