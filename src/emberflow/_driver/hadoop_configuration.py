"""Hadoop's configuration as this driver can read it: from Spark's JVM, from Spark Connect, or from its own files."""

import functools
import getpass
import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberflow._driver.interpreter import is_connect
from emberflow._plan.path_rules import DEFAULT_FS
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_PREFIX = "spark.hadoop."
SITE_FILES = ("core-site.xml", "hdfs-site.xml")
# Inside Hadoop's own jars. All four: with what is left over, 50 kB, Py4J's answer takes 45 ms in place of one.
DEFAULTS = ("core-default.xml", "hdfs-default.xml", "yarn-default.xml", "mapred-default.xml")
# What only a credential provider may hold, with which Hadoop keeps keys out of its files.
PASSWORDS = ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token")
PROVIDERS = "hadoop.security.credential.provider.path"


class JvmConfiguration:
    """What a classic session itself opens files with: core-site.xml, spark.hadoop.*, and what was set later.

    It is read again each time: programs change it while the session runs.
    """

    def __init__(self, spark: "SparkSession") -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001 - PySpark has no public way
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001

    def default_fs(self) -> str:
        """Return the default file system."""
        return str(self._conf.get(DEFAULT_FS, "file:///"))

    def home(self) -> str | None:
        """Return the folder from which Spark resolves relative paths on a default file system that is not local."""
        with suppress(
            Exception
        ):  # no class for this scheme in Spark: Emberflow may still have a driver for it
            folder = self._jvm.org.apache.hadoop.fs.FileSystem.get(self._conf).getWorkingDirectory()
            return str(folder.toUri().getPath())
        return f"/user/{self.user()}"

    def user(self) -> str:
        """Return the name under which Spark uses HDFS."""
        return str(
            self._jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
        )

    def values(self) -> dict[str, str]:
        """Return all settings that are not Hadoop's own defaults, in a handful of calls of the JVM."""
        everything = self._conf.getPropsWithPrefix("")
        everything.entrySet().removeAll(_default_entries(self._jvm))
        found = _as_dict(self._jvm, everything)
        for name in [name for name, value in found.items() if "${" in value]:
            found[name] = str(self._conf.get(name))  # with what the variables stand for
        if PROVIDERS in found:
            for name in PASSWORDS:
                if (secret := self._conf.getPassword(name)) is not None:
                    found[name] = "".join(secret)
        return found


class ConnectConfiguration:
    """What a session of Spark Connect tells: its settings spark.hadoop.*. The files are the server's."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def default_fs(self) -> str | None:
        """Return the default file system, or None where nobody has said it."""
        return self._spark.conf.get(SPARK_PREFIX + DEFAULT_FS, None)

    def home(self) -> None:
        """Return None: the user of the server's processes is not known here."""

    def user(self) -> str:
        """Return nothing: the same."""
        return ""

    def values(self) -> dict[str, str]:
        """Return the settings that both sides have, those of the session before those of this machine's files."""
        known: Mapping[str, str] = getattr(self._spark.conf, "getAll", {})  # Spark 3.5 has no such property
        return _site_values() | {
            name.removeprefix(SPARK_PREFIX): value
            for name, value in known.items()
            if name.startswith(SPARK_PREFIX)
        }


class FileConfiguration:
    """The files of HADOOP_CONF_DIR, for a process without a Spark session."""

    def default_fs(self) -> str:
        """Return the default file system."""
        found = _site_values()
        return found.get(DEFAULT_FS) or found.get("fs.default.name") or "file:///"

    def home(self) -> str:
        """Return the user's home as Hadoop names it."""
        return f"{_site_values().get('dfs.user.home.dir.prefix', '/user')}/{self.user()}"

    def user(self) -> str:
        """Return the name under which this process uses HDFS."""
        with suppress(KeyError, OSError):  # a container's user may have no name
            return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        return ""

    def values(self) -> dict[str, str]:
        """Return the settings of the files."""
        return _site_values()


HadoopConfiguration = JvmConfiguration | ConnectConfiguration | FileConfiguration


def hadoop_configuration(spark: "SparkSession | None") -> HadoopConfiguration:
    """Return the configuration of a session; without one, that of this process' environment."""
    if spark is None:
        return FileConfiguration()
    return ConnectConfiguration(spark) if is_connect(spark) else JvmConfiguration(spark)


@functools.lru_cache(maxsize=1)  # they never change, and to read them takes longer than all the rest
def _default_entries(jvm: Any) -> Any:
    defaults = jvm.org.apache.hadoop.conf.Configuration(False)
    for name in DEFAULTS:
        defaults.addResource(name)
    return defaults.getPropsWithPrefix("").entrySet()


def _as_dict(jvm: Any, properties: Any) -> dict[str, str]:
    """Return a Java map as a dict by one text, of Spark's own JSON library: each entry would be a call otherwise."""
    text = jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(properties)
    found: dict[str, str] = json.loads(text)
    return found


def _site_values() -> dict[str, str]:
    folder = os.environ.get("HADOOP_CONF_DIR", "")
    found: dict[str, str] = {}
    for file in [Path(folder, name) for name in SITE_FILES] if folder else []:
        if file.is_file():
            found |= _properties(file)
    return found


def _properties(file: Path) -> dict[str, str]:
    try:
        root = ElementTree.parse(file).getroot()
    except ElementTree.ParseError as error:
        raise ConfigError(
            f"Hadoop's configuration must be XML. Received: {file}, {error}.",
            fix="Correct the file, or set HADOOP_CONF_DIR to another folder.",
        ) from error
    return {
        (entry.findtext("name") or "").strip(): (entry.findtext("value") or "").strip()
        for entry in root.iter("property")
    }
