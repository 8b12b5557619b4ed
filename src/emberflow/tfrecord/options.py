"""The options of the data source, checked, from the strings that Spark passes on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from emberflow.errors import ConfigError
from emberflow.tfrecord.codec.feature_columns import CORRUPT, Doubles, RecordType
from emberflow.tfrecord.codec.record_frames import CHUNK_BYTES, MAX_RECORD_BYTES, FrameRules

Compression = Literal["none", "gzip", "zlib"]
ParseMode = Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]
Locality = Literal["distributed", "local"]

SPLIT_BYTES = 128 << 20
SUFFIXES: dict[Compression, str] = {"none": "", "gzip": ".gz", "zlib": ".deflate"}

_CODECS: dict[str, Compression] = {
    "": "none",
    "none": "none",
    "uncompressed": "none",
    "gzip": "gzip",
    "zlib": "zlib",
    "deflate": "zlib",
    "org.apache.hadoop.io.compress.gzipcodec": "gzip",
    "org.apache.hadoop.io.compress.defaultcodec": "zlib",
    "org.apache.hadoop.io.compress.deflatecodec": "zlib",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user asked for.

    Attributes:
        paths: Files, folders, patterns and comma lists to read, or the one folder to write.
        compression: None means: by the file's ending when reading, none when writing.
    """

    paths: tuple[str, ...] = ()
    record_type: RecordType = "Example"
    compression: Compression | None = None
    mode: ParseMode = "FAILFAST"
    corrupt_column: str = CORRUPT
    verify: bool = True
    max_record_bytes: int = MAX_RECORD_BYTES
    columns: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    infer_records: int = 1000
    sampling_ratio: float | None = None
    glob_filter: str = ""
    recursive: bool = False
    ignore_corrupt_files: bool = False
    split_bytes: int = SPLIT_BYTES
    batch_bytes: int = CHUNK_BYTES
    doubles: Doubles = "float"
    level: int = -1
    records_per_file: int = 0
    locality: Locality = "distributed"
    partition_by: tuple[str, ...] = ()
    partition_overwrite: Literal["static", "dynamic"] = "static"
    if_exists: Literal["", "error"] = ""
    max_files: int = 0
    max_file_age: float = 7 * 86400.0
    checkpoint: str = ""

    @property
    def rules(self) -> FrameRules:
        """How to read the frames of a file."""
        return FrameRules(
            verify=self.verify, max_record_bytes=self.max_record_bytes, chunk_bytes=self.batch_bytes
        )

    @property
    def is_permissive(self) -> bool:
        """Whether broken records become rows."""
        return self.mode == "PERMISSIVE"


def parse_options(raw: Mapping[str, str]) -> Options:
    """Return the checked options; raise ConfigError for one that cannot be meant."""
    given = _Given({key.lower(): value for key, value in raw.items()})
    return Options(
        paths=given.paths(),
        record_type=given.choice("recordType", get_args(RecordType), "Example"),
        compression=given.compression(),
        mode=given.choice("mode", get_args(ParseMode), "FAILFAST"),
        corrupt_column=given.text("columnNameOfCorruptRecord", CORRUPT),
        verify=given.flag("verifyCrc", True),
        max_record_bytes=given.number("maxRecordBytes", MAX_RECORD_BYTES, least=1),
        columns=given.names("columns"),
        packed=given.names("packed"),
        infer_records=given.number("inferRecords", 1000, least=1),
        sampling_ratio=given.ratio("samplingRatio"),
        glob_filter=given.text("pathGlobFilter", ""),
        recursive=given.flag("recursiveFileLookup", False),
        ignore_corrupt_files=given.flag("ignoreCorruptFiles", False),
        split_bytes=given.number("splitBytes", SPLIT_BYTES, least=0),
        batch_bytes=given.number("batchBytes", CHUNK_BYTES, least=64),
        doubles=given.choice("doubles", get_args(Doubles), "float"),
        level=given.number("compressionLevel", -1, least=-1),
        records_per_file=given.number("recordsPerFile", 0, least=0),
        locality=given.choice("writeLocality", get_args(Locality), "distributed"),
        partition_by=given.names("partitionColumns"),
        partition_overwrite=given.choice("partitionOverwriteMode", ("static", "dynamic"), "static"),
        if_exists=given.choice("ifExists", ("", "error"), ""),
        max_files=given.number("maxFilesPerTrigger", 0, least=0),
        max_file_age=given.seconds("maxFileAge", 7 * 86400.0),
        checkpoint=given.text("checkpointLocation", ""),
    )


class _Given:
    """The options as they came; each method reads one kind."""

    def __init__(self, raw: dict[str, str]) -> None:
        self._raw = raw

    def text(self, name: str, default: str) -> str:
        return self._raw.get(name.lower(), default)

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> Any:
        value = self.text(name, default)
        found = {one.lower(): one for one in allowed}.get(value.lower())
        if found is None:
            raise _wrong(name, value, "one of " + ", ".join(one or "nothing" for one in allowed))
        return found

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.choice(name, ("true", "false"), str(default)) == "true")

    def number(self, name: str, default: int, *, least: int) -> int:
        value = self.text(name, str(default))
        try:
            number = int(value)
        except ValueError:
            raise _wrong(name, value, "a whole number") from None
        if number < least:
            raise _wrong(name, value, f"at least {least}")
        return number

    def ratio(self, name: str) -> float | None:
        value = self.text(name, "")
        try:
            number = float(value) if value else None
        except ValueError:
            number = -1.0
        if number is not None and not 0 < number <= 1:
            raise _wrong(name, value, "a number above 0 and up to 1")
        return number

    def seconds(self, name: str, default: float) -> float:
        value = self.text(name, str(default))
        units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
        number, unit = (value[:-1], value[-1:]) if value[-1:] in units else (value, "s")
        try:
            return float(number) * units[unit]
        except ValueError:
            raise _wrong(name, value, "a time such as 90s, 15m, 12h or 7d") from None

    def names(self, name: str) -> tuple[str, ...]:
        value = self.text(name, "").strip()
        found = json.loads(value) if value.startswith("[") else value.split(",")
        return tuple(part.strip() for part in found if part.strip())

    def compression(self) -> Compression | None:
        name = "compression" if "compression" in self._raw else "codec"
        if name not in self._raw:
            return None
        value = self._raw[name]
        if value.lower() not in _CODECS:
            raise _wrong(name, value, "none, gzip or zlib: TensorFlow reads no other")
        return _CODECS[value.lower()]

    def paths(self) -> tuple[str, ...]:
        if "paths" in self._raw:  # what load([a, b]) sends
            return tuple(json.loads(self._raw["paths"]))
        return (self._raw["path"],) if "path" in self._raw else ()


def _wrong(name: str, value: str, expected: str) -> ConfigError:
    return ConfigError(
        f"Option {name!r} takes {expected}. Received: {name}={value!r}.",
        fix=f'.option("{name}", ...) with {expected}.',
    )
