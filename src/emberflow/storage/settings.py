"""Hadoop's settings in this process: what the drivers of HDFS and object stores must know."""

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """Hadoop's settings by Hadoop's own keys, as ``core-site.xml`` and ``spark.hadoop.*`` name them.

    Values may be secrets: `repr` shows the names only.

    Attributes:
        hadoop: ``fs.defaultFS``, ``dfs.nameservices``, ``dfs.ha.*``, ``fs.s3a.*`` and their like; also
            ``hadoop.user``, the name under which HDFS without Kerberos is used.
    """

    hadoop: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"StorageSettings(hadoop=<{', '.join(sorted(self.hadoop)) or 'nothing'}>)"


_current = [StorageSettings()]


def apply_settings(settings: StorageSettings) -> None:
    """Use these settings for every path of this process, in place of the ones before.

    HDFS clients take the user's name from ``HADOOP_USER_NAME`` whenever they connect, so ``hadoop.user`` becomes
    that variable where this process runs under another name: on YARN a container may be that of ``yarn``.
    """
    _current[0] = settings
    user = settings.hadoop.get("hadoop.user", "")
    if user and user != (os.environ.get("HADOOP_USER_NAME") or user_name()):
        os.environ["HADOOP_USER_NAME"] = user


def user_name() -> str:
    """Return the name of the user of this process; empty for one that has none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # Python before 3.13 raises KeyError
        return ""


def current_settings() -> StorageSettings:
    """Return the settings of this process; empty ones before `apply_settings`."""
    return _current[0]
