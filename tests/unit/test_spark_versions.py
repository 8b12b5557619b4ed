"""What the running Spark can do, and the keys that direct rows where it cannot be told partitions."""

from types import SimpleNamespace
from typing import Any

import pytest

from emberflow._driver import interpreter, spark_versions
from emberflow._driver.spark_versions import FRAME_PROFILES, REPARTITION_BY_ID, check_offers, offers
from emberflow._plan.partition_keys import keys_of_partitions, spark_hash
from emberflow.errors import ClusterError

# SELECT id, hash(cast(id AS int)) FROM range(5) on Spark 3.5.9 and 4.3.0
SPARKS_HASHES = {0: 933211791, 1: -559580957, 2: 1765031574, 3: -1823081949, 4: -397064898}


def session(version: str) -> Any:
    return SimpleNamespace(version=version)


@pytest.mark.parametrize(
    ("version", "expected"), [("4.1.0", True), ("4.0.9", False), ("3.5.6-amzn-0", False)]
)
def test_the_version_of_the_server_counts(version: str, expected: bool) -> None:
    assert offers(session(version), REPARTITION_BY_ID) is expected


def test_the_version_of_the_client_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.0.2")
    assert not offers(session("4.3.0"), REPARTITION_BY_ID)


def test_what_a_version_cannot_do_says_from_which_on_it_works() -> None:
    with pytest.raises(ClusterError, match=r"needs Spark 4\.0 or newer\. Received: Spark 3\.5\.9") as caught:
        check_offers(session("3.5.9"), FRAME_PROFILES, fix="Pass gpus=0.")
    assert caught.value.fix == "Pass gpus=0."


def test_a_version_without_numbers_is_refused() -> None:
    with pytest.raises(ClusterError, match="Received: 'unknown'"):
        spark_versions.parse_version("unknown")


@pytest.mark.parametrize("ranks", [1, 2, 7, 64, 1000])
def test_every_partition_has_a_key_of_its_own(ranks: int) -> None:
    assert [spark_hash(key) % ranks for key in keys_of_partitions(ranks)] == list(range(ranks))


def test_the_hash_is_that_of_spark() -> None:
    assert {value: spark_hash(value) for value in SPARKS_HASHES} == SPARKS_HASHES


class Collected:
    """What `mapInArrow` returns: it notes how it was collected."""

    def __init__(self, profile: Any = None) -> None:
        self.profile = profile

    @property
    def rdd(self) -> "Collected":
        return self

    def withResources(self, profile: Any) -> "Collected":  # noqa: N802
        return Collected(("rdd", profile))

    def collect(self) -> Any:
        return self.profile


@pytest.mark.parametrize(
    ("version", "profile", "expected"),
    [
        ("3.5.9", None, None),
        ("3.5.9", "gpus", ("rdd", "gpus")),
        ("4.0.0", "gpus", "gpus"),
        ("4.3.0", None, None),
    ],
)
def test_a_profile_reaches_spark_in_the_way_it_takes(version: str, profile: Any, expected: Any) -> None:
    class Frame:
        sparkSession = SimpleNamespace(  # noqa: N815
            version=version, sparkContext=SimpleNamespace(master="spark://a:1", pythonExec="python")
        )

        def mapInArrow(self, task: Any, schema: str, *, barrier: bool, **more: Any) -> Collected:  # noqa: N802
            assert version >= "4" or not more
            return Collected(more.get("profile"))

    frame: Any = Frame()
    assert interpreter.collect_in_arrow(frame, len, "id long", barrier=True, profile=profile) == expected
