"""Fixtures for all tests: Spark sessions of every kind, the leak check, MNIST."""

import atexit
import gzip
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from emberflow._collector import pause_collector_for_import
from emberflow.errors import ClusterError
from tests import leaks
from tests.java import ensure_archive, is_archive_written, make_java_home
from tests.sessions import KINDS, SMOKE, Sessions, make_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer

    from tests.scheduling import ClusterScheduling

ROOT = Path(__file__).parent.parent
LEAN = ROOT / "tests" / "lean"
WORKER = os.environ.get("PYTEST_XDIST_WORKER")  # the name of this process among several that run tests
GROUPS = ["unit", "hadoop", "none", *KINDS, "alone"]  # long ones first


def import_every_package() -> None:
    """Undo `LEAN` in this process: where several run tests, they are started with it, and tests need all packages."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "LeaveOut"]


def prepare_environment() -> None:
    """Set what Spark's JVMs and executors inherit; before PySpark starts its first."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Functions of test modules are pickled by name, so executors must find the modules. LEAN has what makes Python
    # processes start with half of the processor time.
    paths = [str(LEAN), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for foreign in (
        "SPARK_HOME",
        "SPARK_CONF_DIR",
        "SPARK_REMOTE",
        "SPARK_CONNECT_MODE_ENABLED",
        "TF_CONFIG",
    ):
        os.environ.pop(foreign, None)
    # Without byte code each of a thousand processes would compile our modules for itself.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    pause_collector_for_import("tensorflow")
    leaks.mark_this_process()


def environment_with_every_package() -> dict[str, str]:
    """Return the environment for a program that draws, or that takes its rows from scikit-learn; its nodes do not."""
    return os.environ | {"EMBERFLOW_TESTS_EVERY_PACKAGE": "1"}


def prepare_temporary_folder() -> None:
    """Give this process a temporary folder of its own: the leak check may then look at all that is in it."""
    parent = tempfile.gettempdir()
    if WORKER:
        folder = Path(parent, WORKER)  # in the folder of the process that schedules, which deletes it
        folder.mkdir()
    else:
        folder = Path(tempfile.mkdtemp(prefix="tests-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", parent)  # the last `tmp_path`s are kept
    temporary = folder / "tmp"
    temporary.mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = str(temporary)
    os.environ["SPARK_HOME"] = str(make_spark_home(folder / "spark"))
    with suppress(ClusterError):  # tests/unit needs no Java
        os.environ["JAVA_HOME"] = str(make_java_home(folder / "java"))


def pytest_configure() -> None:
    """Prepare the process in which tests run: not on import, since nodes may import this too."""
    import_every_package()
    prepare_environment()
    prepare_temporary_folder()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests of one kind of cluster together: going from one to another takes ten seconds."""
    items.sort(key=lambda item: GROUPS.index(_group(item)))
    if WORKER:
        from tests.scheduling import write_groups

        write_groups(Path(os.environ["TMPDIR"]).parent.parent, {item.nodeid: _group(item) for item in items})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "ClusterScheduling | None":
    """Schedule by kinds of clusters, if pytest is told how many processes and nothing else."""
    if config.getoption("dist") != "load":
        return None
    from tests.scheduling import ClusterScheduling

    # The first session writes the archive, and all others would wait for it.
    return ClusterScheduling(config, log, Path(os.environ["TMPDIR"]), unit_first=not is_archive_written())


def _group(item: pytest.Item) -> str:
    """Return what the test needs: a kind of cluster, Hadoop, nothing, no other test at the same time."""
    if item.get_closest_marker("alone"):
        return "alone"
    names = getattr(item, "fixturenames", ())
    kinds = [kind for kind in KINDS if f"spark_{kind}" in names]
    callspec = getattr(item, "callspec", None)
    if callspec is not None and "spark" in callspec.params:
        kinds.append(callspec.params["spark"])
    if kinds:
        return max(kinds, key=list(KINDS).index)
    if "hdfs" in names or "hadoop" in names:
        return "hadoop"
    return "unit" if "unit" in item.path.parts else "none"


@pytest.fixture(scope="session")
def sessions() -> Iterator[Sessions]:
    """The keeper of the one session that may live at a time."""
    ensure_archive()
    keeper = Sessions()
    yield keeper
    keeper.close()


@pytest.fixture
def spark_local(sessions: Sessions) -> "SparkSession":
    """``local[2]``: threads, as in a notebook. Not a cluster."""
    return sessions.get("local")


@pytest.fixture
def spark_cluster(sessions: Sessions) -> "SparkSession":
    """``local-cluster[2,1,1024]``: two executor JVMs with one slot each."""
    return sessions.get("cluster")


@pytest.fixture
def spark_three(sessions: Sessions) -> "SparkSession":
    """``local-cluster[3,1,1024]``: three executor JVMs with one slot each."""
    return sessions.get("three")


@pytest.fixture
def spark_limited(sessions: Sessions) -> "SparkSession":
    """As `spark_cluster`, with a ``spark.driver.maxResultSize`` of 1 MB."""
    return sessions.get("limited")


@pytest.fixture
def spark_retrying(sessions: Sessions) -> "SparkSession":
    """As `spark_cluster`, but Spark repeats a task that failed, as it does by default."""
    return sessions.get("retrying")


@pytest.fixture
def spark_standalone(sessions: Sessions) -> "SparkSession":
    """A Master and two Workers of one slot each, all processes of their own."""
    return sessions.get("standalone")


@pytest.fixture
def spark_allocating(sessions: Sessions) -> "SparkSession":
    """A Master and three Workers of one slot each, whose executors come and go by dynamic allocation."""
    return sessions.get("allocating")


@pytest.fixture
def spark_connect_allocating(sessions: Sessions) -> "SparkSession":
    """A remote session on a Spark Connect server whose executors come and go by dynamic allocation."""
    return sessions.get("connect_allocating")


@pytest.fixture
def spark_connect(sessions: Sessions) -> "SparkSession":
    """A remote session on a Spark Connect server with two executors."""
    return sessions.get("connect")


@pytest.fixture
def spark_gpus(sessions: Sessions) -> "SparkSession":
    """A Master and two Workers with three slots and two pretended GPUs each; a task's default is one GPU."""
    return sessions.get("gpus")


@pytest.fixture
def spark_gpus_allocating(sessions: Sessions) -> "SparkSession":
    """As `spark_gpus`, but executors come and go by dynamic allocation."""
    return sessions.get("gpus_allocating")


@pytest.fixture(params=SMOKE)
def spark(request: pytest.FixtureRequest, sessions: Sessions) -> "SparkSession":
    """Each kind in turn: for the smoke set."""
    return sessions.get(request.param)


@pytest.fixture
def session_ends_with_test(sessions: Sessions) -> Iterator[None]:
    """End the session after a failed run whose executors do not reach the driver.

    Its tasks wait for each other in Spark's barrier. When Spark kills a task that waits there, an exception passes
    through a thread of the executor that catches none, and the executor exits with code 50 a second later: that
    would be during the next test.
    """
    yield
    sessions.close()


@pytest.fixture
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After the test, wait until no process, port or folder of a run is left; name what stays."""
    for name in request.fixturenames:  # what a session brings with it was there before
        if name == "spark" or name.startswith("spark_"):
            request.getfixturevalue(name)
    before = leaks.look()
    yield
    leaks.await_nothing_beyond(before)


class Mnist(NamedTuple):
    """Handwritten digits: images as uint8 of (rows, 28, 28), labels as uint8."""

    train_images: Any
    train_labels: Any
    test_images: Any
    test_labels: Any


@pytest.fixture(scope="session")
def mnist() -> Mnist:
    """The four files of MNIST, from EMBERFLOW_MNIST or beside the repository."""
    folder = mnist_folder()
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    files = [next(iter(folder.glob(f"{name}-ubyte*")), None) for name in names]
    if None in files:
        pytest.skip(f"no MNIST in {folder}; set EMBERFLOW_MNIST to the folder of its four idx files")
    return Mnist(*(read_idx(file) for file in files if file is not None))


def mnist_folder() -> Path:
    """Return where MNIST's files are, if they are here at all."""
    return Path(os.environ.get("EMBERFLOW_MNIST", ROOT.parent / "shared" / "data" / "mnist"))


def read_idx(path: Path) -> Any:
    """Read an array of bytes in the idx format, gzipped or not."""
    import numpy as np

    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    axes = data[3]
    shape = np.frombuffer(data, ">u4", count=axes, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)
