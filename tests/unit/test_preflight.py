"""What is known to fail or to be unsafe is refused in seconds, with what to change."""

import dataclasses
import io
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import emberflow.run  # noqa: F401 - the package's name `run` is the function
from emberflow._driver import cluster_facts
from emberflow._driver.cluster_facts import (
    ENCRYPTION,
    FILE_ENCRYPTION,
    TRAFFIC_ENCRYPTION,
    ClusterFacts,
    check_facts,
    read_facts,
)
from emberflow._driver.interpreter import DRIVER_PYTHON
from emberflow._driver.run_plan import make_plan
from emberflow._driver.slots import check_slots
from emberflow._driver.spark_errors import is_interrupted, lost_task_in, translate
from emberflow._plan.path_rules import PathRules
from emberflow._plan.roles import assign_roles
from emberflow._protocol.outcome import Outcome, ValueRoute, outcome_in
from emberflow._task import node_setup as setup
from emberflow._task import node_task
from emberflow._task.node_setup import check_here
from emberflow._task.node_task import outcome_rows
from emberflow._task.task_spec import TaskSpec
from emberflow.config import RunConfig
from emberflow.errors import ClusterError, DataError, EmberflowError, EncryptionError, RunCancelledError
from emberflow.storage import StorageSettings
from tests.unit.nodes import outcome_of, plan_of

CLASSIC = ClusterFacts(is_connect=False, master="spark://a:7077")


def test_a_plain_cluster_passes() -> None:
    check_facts(CLASSIC, RunConfig(workers=2))


@pytest.mark.parametrize("is_live", [False, True])
def test_dynamic_allocation_is_a_launch_without_a_barrier_and_the_plan_says_why(is_live: bool) -> None:
    facts = read_facts(session_with(spark_dynamicAllocation_enabled="true"))
    check_facts(facts, RunConfig(workers=2))
    plan = make_plan(RunConfig(workers=2), facts, assign_roles(2), is_live=is_live)
    assert (plan.launch, plan.rendezvous, plan.holds_tasks) == ("independent", "driver", is_live)
    assert "launch='independent'" in str(plan)
    assert "spark.dynamicAllocation.enabled=true" in str(plan)
    fixed = make_plan(RunConfig(workers=2), CLASSIC, assign_roles(2), is_live=is_live)
    assert (fixed.launch, fixed.holds_tasks) == ("barrier", False)


def session_with(**settings: str) -> Any:
    """What `read_facts` asks of a session; dots in names of settings are underscores here."""
    conf = {name.replace("_", "."): value for name, value in settings.items()}
    context = SimpleNamespace(
        getConf=lambda: SimpleNamespace(get=conf.get), master="spark://a:7077", applicationId="app"
    )
    return SimpleNamespace(conf=SimpleNamespace(get=conf.get), sparkContext=context)


@pytest.fixture(autouse=True)
def without_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    """These sessions have no JVM that could be asked for Hadoop's settings."""
    monkeypatch.setattr(cluster_facts, "path_rules_of", lambda _: PathRules())
    monkeypatch.setattr(cluster_facts, "storage_settings_of", lambda _: StorageSettings())


@pytest.mark.parametrize("spelling", ["true", "TRUE", "True", " true "])
@pytest.mark.parametrize(
    "setting",
    [
        "spark.ssl.enabled",
        "spark.ssl.rpc.enabled",
        "spark.network.crypto.enabled",
        "spark.authenticate.enableSaslEncryption",
        "spark.io.encryption.enabled",
    ],
)
def test_every_setting_that_asks_for_encryption_is_noticed_as_spark_reads_it(
    setting: str, spelling: str
) -> None:
    facts = read_facts(session_with(**{setting.replace(".", "_"): spelling}))
    assert facts.encryption == (setting,)


@pytest.mark.parametrize("spelling", ["false", "FALSE", "", "1", "yes"])
def test_other_values_and_other_settings_ask_for_nothing(spelling: str) -> None:
    asked = {name.replace(".", "_"): spelling for name in ENCRYPTION}
    facts = read_facts(
        session_with(**asked, spark_network_crypto_saslFallback="true", spark_authenticate="true")
    )
    assert facts.encryption == ()


@pytest.mark.parametrize("setting", [*TRAFFIC_ENCRYPTION, ""])
@pytest.mark.parametrize(
    "chosen",
    [{"strategy": "parameter_server", "ps": 1}, {"transport": "collectives"}],
    ids=["ps", "collectives"],
)
def test_only_what_tensorflow_cannot_encrypt_is_refused_unless_the_user_allows_it(
    setting: str, chosen: dict[str, Any]
) -> None:
    facts = dataclasses.replace(CLASSIC, encryption=(setting,) if setting else ())
    asked: dict[str, Any] = {"workers": 2, "encrypt": not setting}
    with pytest.raises(EncryptionError, match=f"{setting}=true" if setting else "encrypt=True") as caught:
        check_facts(facts, RunConfig(**asked, **chosen))
    assert "allow_unencrypted=True" in caught.value.fix
    check_facts(facts, RunConfig(**asked, **chosen, allow_unencrypted=True))
    for encrypted in ({}, {"transport": "ring"}, {"strategy": "periodic", "ps": 1}, {"gpus": 1}):
        check_facts(facts, RunConfig(**asked, **encrypted))


@pytest.mark.parametrize("chosen", [{"strategy": "parameter_server", "ps": 1}, {"transport": "collectives"}])
def test_encrypted_local_files_refuse_nothing(chosen: dict[str, Any]) -> None:
    facts = dataclasses.replace(CLASSIC, encryption=(FILE_ENCRYPTION,))
    assert (facts.encrypts_files, facts.encrypts_traffic) == (True, False)
    check_facts(facts, RunConfig(workers=2, **chosen))


@pytest.mark.parametrize(
    ("settings", "options", "encrypted", "transport"),
    [
        ((), {}, False, "ring"),
        ((), {"gpus": 1}, False, "collectives"),
        ((), {"gpus": 1, "transport": "none"}, False, "none"),
        ((), {"encrypt": True}, True, "ring"),
        ((), {"encrypt": True, "gpus": 1}, True, "ring"),
        (("spark.network.crypto.enabled",), {"gpus": 1}, True, "ring"),
        (("spark.network.crypto.enabled",), {"gpus": 1, "allow_unencrypted": True}, True, "collectives"),
        (("spark.io.encryption.enabled",), {}, False, "ring"),
    ],
)
def test_a_run_is_encrypted_where_spark_is_or_the_user_asks_for_it(
    settings: tuple[str, ...], options: dict[str, Any], encrypted: bool, transport: str
) -> None:
    facts = dataclasses.replace(CLASSIC, encryption=settings)
    plan = make_plan(RunConfig(workers=2, **options), facts, assign_roles(2), waits_for_rows=False)
    assert (plan.encrypt, plan.transport) == (encrypted, transport)
    assert plan.allows_tf_servers == (not encrypted or "allow_unencrypted" in options)


def test_connect_warns_of_what_it_cannot_know(caplog: pytest.LogCaptureFixture) -> None:
    connect = ClusterFacts(is_connect=True)
    with caplog.at_level(logging.WARNING, logger="emberflow"):
        check_facts(connect, RunConfig(workers=2, allow_unencrypted=True))
        check_facts(connect, RunConfig(workers=2, encrypt=True))
        assert not caplog.records
        check_facts(connect, RunConfig(workers=2))
    assert "does not tell" in caplog.text


@pytest.mark.parametrize(("slots", "words"), [(0, "none has registered"), (2, "Pass workers=2 or fewer")])
def test_too_few_slots_say_how_many_there_are_and_what_to_change(slots: int, words: str) -> None:
    with pytest.raises(ClusterError, match="needs 3 task slots") as caught:
        check_slots(slots, workers=3, helpers=0, master="spark://a:7077")
    assert f"Received: {slots} slots from spark://a:7077" in str(caught.value)
    assert words in caught.value.fix


def test_enough_slots_pass() -> None:
    check_slots(3, workers=2, helpers=1, master=None)


def test_another_python_on_executors_is_refused() -> None:
    plan = dataclasses.replace(plan_of(2), python=(3, 99))
    with pytest.raises(EmberflowError, match=r"the driver 3\.99") as caught:
        check_here(plan)
    assert "PYSPARK_PYTHON" in caught.value.fix


def test_a_python_without_tensorflow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EmberflowError, match="TensorFlow is not installed") as caught:
        check_here(plan_of(2))
    assert sys.executable in str(caught.value)


def test_a_limit_on_address_space_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.resource, "getrlimit", lambda _: (600 << 20, 600 << 20))
    with pytest.raises(EmberflowError, match="600 MB") as caught:
        check_here(plan_of(2))
    assert "spark.executor.pyspark.memory" in caught.value.fix


def test_a_refusal_reaches_the_user_as_an_error_that_is_not_worth_a_restart() -> None:
    error = outcome_of(1, "refused", problem="TensorFlow is not installed", fix="Install it.").error()
    assert type(error) is ClusterError
    assert "TensorFlow is not installed" in str(error)
    assert error.fix == "Install it."


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("ModuleNotFoundError: No module named 'emberflow'", ClusterError, "no module emberflow"),
        (
            "ModuleNotFoundError: No module named 'pyarrow'",
            ClusterError,
            f"the driver's Python {DRIVER_PYTHON}",
        ),
        (
            (
                "The executors' Python 3.11.2 (/usr/bin/python3) has no module emberflow. Received: the driver's "
                "Python 3.11.9 (/env/bin/python).\nFix: export PYSPARK_PYTHON=/env/bin/python\n"
            ),
            ClusterError,
            "(/env/bin/python).\nFix: export PYSPARK_PYTHON=/env/bin/python",
        ),
        (
            "[PACKAGE_NOT_INSTALLED] Pandas >= 2.2.0 must be installed; however, it was not found.",
            ClusterError,
            "the package Pandas, version 2.2.0 or newer",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11,",
            ClusterError,
            f"Python 3.9 on executors, the driver's Python {DRIVER_PYTHON}",
        ),
        ('java.io.IOException: Cannot run program "python9": error=2', ClusterError, "python9"),
        ("[SPARK-24819]: Barrier execution mode does not allow", ClusterError, "slots"),
        ("[SPARK-24942]: Barrier execution mode does not support dynamic", ClusterError, "dynamicAllocation"),
        ("is bigger than spark.driver.maxResultSize (1024.0 MiB)", ClusterError, "Save large values"),
        ("Job 0 cancelled because SparkContext was shut down", ClusterError, "session was stopped"),
        (
            "[SPARK_JOB_CANCELLED] Job 3 cancelled as part of cancellation of all jobs",
            RunCancelledError,
            "cancelled",
        ),
        ("Job 17 cancelled as part of cancellation of all jobs", RunCancelledError, "cancelled"),  # Spark 3.5
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version (3, 10) than that in driver 3.11,",
            ClusterError,
            "Python 3.10 on executors",
        ),
        ("[OPERATION_CANCELED] Operation has been canceled.", RunCancelledError, "cancelled"),
        ("something new and strange", ClusterError, "something new and strange"),
    ],
)
def test_sparks_errors_are_translated(text: str, kind: type[EmberflowError], words: str) -> None:
    error = translate(RuntimeError(text))
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    "head",
    [
        "",
        "(org.apache.spark.SparkException) ",
        "An error occurred while calling o390.collectToPython.\n: org.apache.spark.SparkException: ",
        "Job failed.\n\tat java.lang.Thread.run(Thread.java:840)\nCaused by: org.apache.spark.SparkException: ",
    ],
    ids=["plain", "connect", "py4j", "cause"],
)
def test_a_cancelled_job_is_known_by_the_error_condition_of_spark(head: str) -> None:
    error = RuntimeError(f"{head}[SPARK_JOB_CANCELLED] Job 3 cancelled as part of cancellation of all jobs")
    assert is_interrupted(error)
    assert isinstance(translate(error), RunCancelledError)


@pytest.mark.parametrize(
    "said",
    [
        "the order was cancelled",
        "cancelled because the SparkContext was shut down",
        "[SPARK_JOB_CANCELLED] no",
    ],
)
def test_an_error_of_your_own_that_speaks_of_cancelling_is_no_cancelled_job(said: str) -> None:
    text = (
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        f'  File "/home/me/rows.py", line 9, in clean\nValueError: {said}\n'
    )
    assert not is_interrupted(RuntimeError(text))
    error = translate(RuntimeError(text), waits_for_rows=True)
    assert type(error) is DataError
    assert said in str(error)


def test_a_task_that_its_python_could_not_run_is_not_a_lost_node() -> None:
    barrier = "Stage failed because barrier task ResultTask(3, 1) finished unsuccessfully.\nPythonException: "
    assert lost_task_in(RuntimeError(barrier + "ModuleNotFoundError: No module named 'pyarrow'")) is None
    assert lost_task_in(RuntimeError(barrier + "ValueError: something else")) is not None


def test_an_outcome_travels_inside_sparks_text() -> None:
    sent = outcome_of(1, "raised", problem='Traceback\n  File "a.py"\nValueError: "ä" \\ $MARK', fix="f")
    text = f"org.apache.spark.SparkException: Job aborted\n  NodeOutcomeError: {sent.to_error_text()}\nFix: x"
    assert outcome_in(text) == sent
    assert outcome_in("nothing of ours") is None


def test_what_is_printed_of_a_task_holds_neither_key_nor_code() -> None:
    spec = TaskSpec(plan=plan_of(2), key=b"very-secret", fn=b"code-bytes")
    assert "secret" not in repr(spec)
    assert "code-bytes" not in repr(spec)
    assert "0a1b2c3d" in repr(spec)


def test_a_node_inherits_the_workers_environment_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "hush")
    monkeypatch.setenv("MY_SETTING", "kept")
    environment = setup._environment(plan_of(2), plan_of(2).nodes[1])
    assert "hush" not in environment.values()
    assert environment["MY_SETTING"] == "kept"
    assert environment["EMBERFLOW_RUN"] == "0a1b2c3d"
    assert environment["EMBERFLOW_NODE"] == "worker 1"


def test_a_node_keeps_the_memory_of_its_tensors_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    environment = setup._environment(plan_of(2), plan_of(2).nodes[1])
    assert environment["MALLOC_TOP_PAD_"] == "1"
    assert environment["MALLOC_MMAP_THRESHOLD_"] == "33554432"


def test_a_nodes_folder_is_its_own(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    folder = setup._make_folder(plan_of(2), plan_of(2).nodes[1])
    assert str(folder).startswith(f"{tmp_path}/emberflow-0a1b2c3d-0-1-")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "work").stat().st_mode & 0o777 == 0o700


def test_values_travel_in_parts_unless_they_went_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_task, "CHUNK", 10)
    value = bytes(range(25))
    chief = [batch.to_pylist()[0] for batch in outcome_rows(outcome_of(0), io.BytesIO(value))]
    assert b"".join(row["value"] for row in chief) == value
    assert [row["part"] for row in chief] == [0, 1, 2]
    assert Outcome.from_json(chief[0]["outcome"]) == outcome_of(0)
    others = (
        outcome_of(0, value_route=ValueRoute.DRIVER),
        outcome_of(0, value_route=ValueRoute.STORAGE),
        outcome_of(0, "undelivered"),
    )
    for outcome in others:
        (row,) = (batch.to_pylist()[0] for batch in outcome_rows(outcome, io.BytesIO(value)))
        assert row["value"] == b""
    (none,) = (batch.to_pylist()[0] for batch in outcome_rows(outcome_of(1), None))
    assert none["value"] == b""
