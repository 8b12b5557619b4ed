"""Which URL a path means: Spark's rule, as values that nodes and tasks can apply too."""

import posixpath
import re
from dataclasses import dataclass

from emberflow.errors import ConfigError

LOCAL_SCHEMES = frozenset({"", "file", "local"})
DEFAULT_FS = "fs.defaultFS"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")


def scheme_of(path: str) -> str:
    """Return the scheme of a path in lower case; empty for a path without one.

    >>> [scheme_of(path) for path in ("hdfs://a/x", "file:/x", "/x", "x:y", "/day/10:/x")]
    ['hdfs', 'file', '', '', '']
    """
    found = _SCHEME.match(path)
    return found[1].lower() if found else ""


@dataclass(frozen=True, kw_only=True)
class PathRules:
    """Where paths without a scheme are: on Hadoop's default file system, as everywhere in Spark.

    Attributes:
        default_fs: The default file system as Hadoop writes it, such as ``hdfs://host:8020``; ``file:///`` for local
            disk; None where it is not known.
        home: The folder there that relative paths start from; on local disk the driver's working directory. None
            where it is not known.
    """

    default_fs: str | None = "file:///"
    home: str | None = "/"

    @property
    def is_local(self) -> bool:
        """Whether the default file system is local disk."""
        return self.default_fs is not None and scheme_of(self.default_fs) in LOCAL_SCHEMES

    def resolve(self, path: str) -> str:
        """Return the URL, or on local disk the absolute path. A path is text: nothing in it is quoted or unquoted.

        >>> rules = PathRules(default_fs="hdfs://host:8020/", home="/user/ann")
        >>> rules.resolve("models/1"), rules.resolve("/data/*.parquet"), rules.resolve("hdfs:///x")
        ('hdfs://host:8020/user/ann/models/1', 'hdfs://host:8020/data/*.parquet', 'hdfs://host:8020/x')
        >>> rules.resolve("s3a://bucket/x"), rules.resolve("file:/x")
        ('s3a://bucket/x', 'file:/x')
        >>> PathRules(home="/work").resolve("models/1")
        '/work/models/1'
        """
        if not path:
            raise ConfigError(
                "A path must not be empty. Received: path=''.",
                fix='Pass a path such as "models/1", or a URL such as "hdfs:///models/1".',
            )
        scheme = scheme_of(path)
        if scheme:
            return path if scheme in LOCAL_SCHEMES else self._with_authority(path, scheme)
        if self.default_fs is None:
            raise _no_default(path)
        if self.is_local:
            # "~" is left to the process that opens the path: it is the home of that process' user.
            return path if path.startswith("~") else _joined(self._home_for(path), path)
        inside = posixpath.normpath(_joined(self._home_for(path), path))
        return _base(self.default_fs) + inside

    def _with_authority(self, path: str, scheme: str) -> str:
        """Return a URL in full: ``hdfs:/x`` and ``hdfs:///x`` are on the default file system, if that is an HDFS."""
        rest = path[len(scheme) + 1 :]
        if rest.startswith("//") and not rest.startswith("///"):
            return path
        inside = "/" + rest.lstrip("/")
        if self.default_fs is not None and scheme_of(self.default_fs) == scheme:
            return _base(self.default_fs) + inside
        return f"{scheme}://{inside}"

    def _home_for(self, path: str) -> str:
        if path.startswith("/"):
            return "/"
        if self.home is None:
            raise ConfigError(
                "A relative path needs a folder to start from: the user's home, which Spark Connect does not tell, "
                f"or a working directory that exists. Received: path={path!r}.",
                fix=f'Pass it in full, such as "/user/name/{path}".',
            )
        return self.home


def _joined(home: str, path: str) -> str:
    parts = [part for part in f"{home}/{path}".split("/") if part not in ("", ".")]
    return "/" + "/".join(parts)


def _base(default_fs: str) -> str:
    """Return scheme and authority; Hadoop ignores a path in its default file system."""
    scheme, _, rest = default_fs.partition(":")
    authority = rest[2:].partition("/")[0] if rest.startswith("//") else ""
    return f"{scheme}://{authority}"


def _no_default(path: str) -> ConfigError:
    return ConfigError(
        f"A path needs a scheme where Spark's default file system is not known. Received: path={path!r} on Spark "
        f"Connect, without the setting spark.hadoop.{DEFAULT_FS}.",
        fix=f'Write the scheme: "file:{path}" or "hdfs://host:8020{path}"; or say once what the server uses: '
        f'spark.conf.set("spark.hadoop.{DEFAULT_FS}", "hdfs://host:8020"), or "file:///".',
    )
