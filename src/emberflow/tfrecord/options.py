"""The options of the data source, parsed and checked from the strings that Spark passes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from emberflow._plan import deadlines
from emberflow.errors import ConfigError
from emberflow.storage import StorageSettings
from emberflow.tfrecord.codec.feature_columns import CORRUPT, Doubles, RecordType
from emberflow.tfrecord.codec.record_frames import CHUNK_BYTES, MAX_RECORD_BYTES, FrameRules
from emberflow.tfrecord.compression import CODECS, Codec, codec_named

ParseMode = Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]
Locality = Literal["distributed", "local"]

SPLIT_BYTES = 128 << 20  # of one task: the default of spark.sql.files.maxPartitionBytes
INFER_RECORDS = 1000


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that the user set.

    Attributes:
        paths: Files, folders, patterns and comma lists to read, or the one folder to write.
        compression: None means: by the file's ending when reading, none when writing.
        storage: Hadoop's settings, with which files are opened; they may hold secrets.
    """

    paths: tuple[str, ...] = ()
    record_type: RecordType = "Example"
    compression: Codec | None = None
    mode: ParseMode = "FAILFAST"
    corrupt_column: str = CORRUPT
    verify: bool = True
    max_record_bytes: int = MAX_RECORD_BYTES
    columns: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    infer_records: int = INFER_RECORDS
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
    max_file_age: float = deadlines.MAX_FILE_AGE
    checkpoint: str = ""
    storage: StorageSettings = field(default_factory=StorageSettings)

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
    """Return the checked options; raise ConfigError for an invalid one."""
    raw_options = _RawOptions({key.lower(): value for key, value in raw.items()})
    return Options(
        paths=raw_options.paths(),
        record_type=raw_options.choice("recordType", get_args(RecordType), "Example"),
        compression=raw_options.compression(),
        mode=raw_options.choice("mode", get_args(ParseMode), "FAILFAST"),
        corrupt_column=raw_options.text("columnNameOfCorruptRecord", CORRUPT),
        verify=raw_options.flag("verifyCrc", True),
        max_record_bytes=raw_options.number("maxRecordBytes", MAX_RECORD_BYTES, least=1),
        columns=raw_options.names("columns"),
        packed=raw_options.names("packed"),
        infer_records=raw_options.number("inferRecords", INFER_RECORDS, least=1),
        sampling_ratio=raw_options.ratio("samplingRatio"),
        glob_filter=raw_options.text("pathGlobFilter", ""),
        recursive=raw_options.flag("recursiveFileLookup", False),
        ignore_corrupt_files=raw_options.flag("ignoreCorruptFiles", False),
        split_bytes=raw_options.number("splitBytes", SPLIT_BYTES, least=0),
        batch_bytes=raw_options.number("batchBytes", CHUNK_BYTES, least=64),
        doubles=raw_options.choice("doubles", get_args(Doubles), "float"),
        level=raw_options.number("compressionLevel", -1, least=-1),
        records_per_file=raw_options.number("recordsPerFile", 0, least=0),
        locality=raw_options.choice("writeLocality", get_args(Locality), "distributed"),
        partition_by=raw_options.names("partitionColumns"),
        partition_overwrite=raw_options.choice("partitionOverwriteMode", ("static", "dynamic"), "static"),
        if_exists=raw_options.choice("ifExists", ("", "error"), ""),
        max_files=raw_options.number("maxFilesPerTrigger", 0, least=0),
        max_file_age=raw_options.seconds("maxFileAge", deadlines.MAX_FILE_AGE),
        checkpoint=raw_options.text("checkpointLocation", ""),
    )


class _RawOptions:
    """The options as Spark passes them; each method parses one type."""

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

    def compression(self) -> Codec | None:
        name = "compression" if "compression" in self._raw else "codec"
        if name not in self._raw:
            return None
        value = self._raw[name]
        codec = codec_named(value)
        if codec is None:
            raise _wrong(name, value, f"one of {', '.join(CODECS)}; TensorFlow reads no other")
        return codec

    def paths(self) -> tuple[str, ...]:
        if "paths" in self._raw:  # load([a, b]) sends this
            return tuple(json.loads(self._raw["paths"]))
        return (self._raw["path"],) if "path" in self._raw else ()


def _wrong(name: str, value: str, expected: str) -> ConfigError:
    return ConfigError(
        f"Option {name!r} must be {expected}. Received: {name}={value!r}.",
        fix=f'Pass .option("{name}", ...) with {expected}.',
    )
