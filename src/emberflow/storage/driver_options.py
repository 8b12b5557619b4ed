"""From Hadoop's settings to the options of each storage driver.

Without a setting the driver's own sources hold: ``HADOOP_CONF_DIR`` for HDFS, ``AWS_*`` and ``~/.aws`` for S3, the
application default credentials for Google, ``AZURE_*`` for Azure.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

Options = dict[str, Any]

_HDFS_KEYS = ("fs.defaultFS", "fs.viewfs.", "dfs.", "hadoop.security.", "hadoop.rpc.", "ipc.")
_GOOGLE_TOKENS = {
    "UNAUTHENTICATED": "anon",
    "APPLICATION_DEFAULT": "google_default",
    "COMPUTE_ENGINE": "cloud",
}


def options_of(protocol: str, url: str, hadoop: Mapping[str, str]) -> Options:
    """Return what Hadoop's settings say about a URL, as keyword arguments of the driver of that protocol."""
    make = _OPTIONS.get(protocol)
    return make(urlsplit(url).netloc, hadoop) if make else {}


def hdfs_options(_authority: str, hadoop: Mapping[str, str]) -> Options:
    """Return the settings that an HDFS client reads; they override those of ``HADOOP_CONF_DIR``."""
    return {key: value for key, value in hadoop.items() if key.startswith(_HDFS_KEYS)}


def s3_options(bucket: str, hadoop: Mapping[str, str]) -> Options:
    """Return the options of s3fs, from ``fs.s3a.*`` and its overrides for one bucket."""

    def setting(name: str) -> str:
        return (hadoop.get(f"fs.s3a.bucket.{bucket}.{name}") or hadoop.get(f"fs.s3a.{name}") or "").strip()

    options: Options = {}
    if setting("access.key") and setting("secret.key"):
        options |= {"key": setting("access.key"), "secret": setting("secret.key")}
        options |= {"token": setting("session.token")} if setting("session.token") else {}
    elif "AnonymousAWSCredentialsProvider" in setting("aws.credentials.provider"):
        options["anon"] = True
    if endpoint := setting("endpoint"):
        scheme = "http" if setting("connection.ssl.enabled").lower() == "false" else "https"
        options["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if region := setting("endpoint.region"):
        options["client_kwargs"] = {"region_name": region}
    if setting("path.style.access").lower() == "true":
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return options


def google_options(_bucket: str, hadoop: Mapping[str, str]) -> Options:
    """Return the options of gcsfs, from ``fs.gs.*``."""
    options: Options = {}
    if project := hadoop.get("fs.gs.project.id"):
        options["project"] = project
    token = hadoop.get("fs.gs.auth.service.account.json.keyfile") or _GOOGLE_TOKENS.get(
        hadoop.get("fs.gs.auth.type", "")
    )
    if token:
        options["token"] = token
    if endpoint := hadoop.get("fs.gs.storage.root.url"):
        options["endpoint_url"] = endpoint
    return options


def azure_options(authority: str, hadoop: Mapping[str, str]) -> Options:
    """Return the options of adlfs, from ``fs.azure.*`` of the account in ``container@account.host``."""
    host = authority.rpartition("@")[2]

    def setting(name: str) -> str:
        return hadoop.get(f"fs.azure.{name}.{host}") or hadoop.get(f"fs.azure.{name}") or ""

    named = {
        "account_key": setting("account.key"),
        "sas_token": setting("sas.fixed.token"),
        "client_id": setting("account.oauth2.client.id"),
        "client_secret": setting("account.oauth2.client.secret"),
        "tenant_id": urlsplit(setting("account.oauth2.client.endpoint")).path.strip("/").partition("/")[0],
    }
    return {name: value for name, value in named.items() if value}


_OPTIONS: dict[str, Callable[[str, Mapping[str, str]], Options]] = {
    **dict.fromkeys(["hdfs", "viewfs"], hdfs_options),
    **dict.fromkeys(["s3", "s3a"], s3_options),
    **dict.fromkeys(["gs", "gcs"], google_options),
    **dict.fromkeys(["abfs", "az"], azure_options),
}
