"""Hadoop's settings as options of the drivers: what is passed on, to whom, and what is never shown."""

import getpass
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from emberflow import storage
from emberflow.storage.driver_options import options_of
from emberflow.storage.location import locate

KEYS = {"fs.s3a.access.key": "key", "fs.s3a.secret.key": "secret"}


@pytest.fixture(autouse=True)
def settings_as_before() -> Iterator[None]:
    before = storage.current_settings()
    yield
    storage.apply_settings(before)


def test_settings_show_their_names_and_never_their_values() -> None:
    settings = storage.StorageSettings(hadoop={"fs.s3a.secret.key": "hush", "fs.defaultFS": "hdfs://name"})
    assert repr(settings) == "StorageSettings(hadoop=<fs.defaultFS, fs.s3a.secret.key>)"
    assert "hush" not in f"{settings} {settings!r}"
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_settings_replace_those_before() -> None:
    for value in ("a", "b"):
        storage.apply_settings(storage.StorageSettings(hadoop={value: value}))
    assert storage.current_settings().hadoop == {"b": "b"}


def test_the_user_of_hadoop_becomes_that_of_the_hdfs_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "yarn")
    storage.apply_settings(storage.StorageSettings(hadoop={"hadoop.user": "ada"}))
    assert os.environ["HADOOP_USER_NAME"] == "ada"
    monkeypatch.delenv("HADOOP_USER_NAME")
    storage.apply_settings(storage.StorageSettings(hadoop={"hadoop.user": getpass.getuser()}))
    assert "HADOOP_USER_NAME" not in os.environ, "nothing to change: this process is that user's"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_s3_is_opened_with_the_keys_of_hadoop(scheme: str) -> None:
    pytest.importorskip("s3fs")
    storage.apply_settings(
        storage.StorageSettings(
            hadoop=KEYS | {"fs.s3a.endpoint": "127.0.0.1:9", "fs.s3a.connection.ssl.enabled": "false"}
        )
    )
    location = locate(f"{scheme}://bucket/x")
    assert (location.fs.key, location.fs.secret) == ("key", "secret")
    assert location.fs.endpoint_url == "http://127.0.0.1:9"
    assert location.named("bucket/x/y") == f"{scheme}://bucket/x/y"


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, {}),
        (KEYS, {"key": "key", "secret": "secret"}),
        ({"fs.s3a.access.key": "key"}, {}),
        (KEYS | {"fs.s3a.session.token": "t"}, {"key": "key", "secret": "secret", "token": "t"}),
        (KEYS | {"fs.s3a.bucket.b.secret.key": "own"}, {"key": "key", "secret": "own"}),
        (KEYS | {"fs.s3a.bucket.other.secret.key": "own"}, {"key": "key", "secret": "secret"}),
        ({"fs.s3a.endpoint": "https://s3.local"}, {"endpoint_url": "https://s3.local"}),
        ({"fs.s3a.endpoint": "s3.local:9"}, {"endpoint_url": "https://s3.local:9"}),
        ({"fs.s3a.endpoint.region": "eu-1"}, {"client_kwargs": {"region_name": "eu-1"}}),
        ({"fs.s3a.path.style.access": "true"}, {"config_kwargs": {"s3": {"addressing_style": "path"}}}),
        (
            {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            {"anon": True},
        ),
    ],
)
def test_options_of_s3(settings: dict[str, str], options: dict[str, Any]) -> None:
    assert options_of("s3a", "s3a://b/x", settings) == options


@pytest.mark.parametrize(
    ("url", "settings", "options"),
    [
        ("hdfs://ns/x", {"dfs.nameservices": "ns", **KEYS}, {"dfs.nameservices": "ns"}),
        ("viewfs://c/x", {"fs.viewfs.mounttable.c.link./a": "hdfs://n/a"}, None),
        ("gs://b/x", {"fs.gs.project.id": "p"}, {"project": "p"}),
        ("gs://b/x", {"fs.gs.auth.type": "UNAUTHENTICATED"}, {"token": "anon"}),
        ("gs://b/x", {"fs.gs.auth.service.account.json.keyfile": "/k.json"}, {"token": "/k.json"}),
        (
            "abfs://box@one.dfs.core.windows.net/x",
            {
                "fs.azure.account.key.one.dfs.core.windows.net": "k",
                "fs.azure.account.key.two.dfs.core.windows.net": "other",
            },
            {"account_key": "k"},
        ),
        (
            "abfs://box@one.dfs.core.windows.net/x",
            {
                "fs.azure.account.oauth2.client.id": "i",
                "fs.azure.account.oauth2.client.secret": "s",
                "fs.azure.account.oauth2.client.endpoint": "https://login.example/tenant/oauth2/token",
            },
            {"client_id": "i", "client_secret": "s", "tenant_id": "tenant"},
        ),
        ("memory://x", KEYS, {}),
    ],
)
def test_options_of_other_stores(url: str, settings: dict[str, str], options: dict[str, Any] | None) -> None:
    found = options_of(url.partition(":")[0], url, settings)
    assert found == (settings if options is None else options)


def test_a_process_whose_user_has_no_name_gets_that_of_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise OSError("No username set in the environment")

    monkeypatch.setattr(getpass, "getuser", nameless)
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    storage.apply_settings(storage.StorageSettings(hadoop={"hadoop.user": "ada"}))
    assert os.environ["HADOOP_USER_NAME"] == "ada"
    monkeypatch.delenv("HADOOP_USER_NAME")
