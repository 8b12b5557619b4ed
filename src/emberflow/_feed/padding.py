"""Arrays of any length as dense tensors: to which length each list level of a column is padded, and with what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from emberflow._feed.element_types import BYTES
from emberflow._feed.shard_facts import UNSEEN, Length
from emberflow.config import is_count
from emberflow.errors import ConfigError, DataError

PadTo = int | Literal["longest", "batch"]
"""A length; that of the longest row of all ranks; or that of the longest row of each batch, on each rank its own."""


@dataclass(frozen=True, kw_only=True)
class Padding:
    """How the rows of one column are padded.

    Attributes:
        lengths: The length of each ragged level; None for that of the longest row of the batch.
        value: What is added at the end.
    """

    lengths: tuple[int | None, ...]
    value: Any


@dataclass(frozen=True, kw_only=True)
class PadOptions:
    """What the user declares, each by dotted column name.

    Attributes:
        pad_to: The length to pad the rows' arrays to.
        pad_value: What is added; 0 or an empty string by default.
    """

    pad_to: Mapping[str, PadTo] = field(default_factory=dict)
    pad_value: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, length in self.pad_to.items():
            if length not in ("longest", "batch") and not is_count(length):
                raise ConfigError(
                    '`pad_to` must be a whole number, 1 or more, "longest" or "batch". '
                    f"Received: {length!r} for {name!r}.",
                    fix=f'Pass pad_to={{"{name}": "longest"}}.',
                )
        for name in self.pad_value:
            if name not in self.pad_to:
                raise ConfigError(
                    f"`pad_value` needs `pad_to`. Received: pad_value for {name!r}.",
                    fix=f'Pass pad_to={{"{name}": "longest"}} too.',
                )

    def least_ragged(self, name: str, levels: int) -> int:
        """Return how many list levels of a column are padded even where the rows that are known have one length."""
        length = self.pad_to.get(name, "longest")
        if name in self.pad_to and not levels:
            raise ConfigError(
                f"`pad_to` is for columns of arrays. Received: pad_to for {name!r}, which has one value in each row.",
                fix="Leave it out.",
            )
        return 0 if length == "longest" else 1

    def padding_of(
        self, name: str, dtype: str, seen: Sequence[Length], ranks: tuple[int, int] | None
    ) -> Padding | None:
        """Return how a column is padded whose ragged levels have these lengths; None if it is not.

        Args:
            name: The column.
            dtype: The dtype of its tensor.
            seen: Minimum and maximum length of each ragged level.
            ranks: The ranks of the shortest and the longest row, where ranks differ.
        """
        if name not in self.pad_to or not seen:
            return None
        wanted = self.pad_to[name]
        value = self.pad_value.get(name, "" if dtype == BYTES else 0)
        most = [0 if length == UNSEEN else length[1] for length in seen]
        if wanted == "batch":
            return Padding(lengths=(None,) * len(most), value=_checked(name, dtype, value))
        if wanted != "longest":
            if most[0] > wanted:
                raise too_long(name, wanted, most[0], ranks[1] if ranks else None)
            most[0] = wanted
        return Padding(lengths=tuple(most), value=_checked(name, dtype, value))


def check_padded(name: str, padding: Padding, seen: Sequence[Length], rank: int) -> None:
    """Raise an error if rows that arrived later are longer than those that the padding was planned for."""
    for length, (least, most) in zip(padding.lengths, seen, strict=False):
        if length is not None and least <= most and most > length:
            raise too_long(name, length, most, rank)


def too_long(name: str, length: int, received: int, rank: int | None) -> DataError:
    """Return the error for rows that are longer than the length to pad to."""
    where = "" if rank is None else f" at rank {rank}"
    return DataError(
        f"Column {name!r} must hold at most {length} values in each row to be padded to that length. "
        f"Received: a row of {received} values{where}.",
        fix=f'Pad to {received}, or cut rows in Spark: df.withColumn("{name}", F.slice("{name}", 1, {length})).',
    )


def check_known_longest(pad_options: PadOptions) -> None:
    """Refuse "longest" for rows that are not kept: the longest is known when the last has arrived."""
    for name, length in pad_options.pad_to.items():
        if length == "longest":
            raise ConfigError(
                "The longest row is not known before all rows have arrived. "
                f"Received: pad_to={{{name!r}: 'longest'}} with cache=False.",
                fix=f'Pass a length, pad_to={{"{name}": 128}}, or "batch"; or leave cache=False out.',
            )


def _checked(name: str, dtype: str, value: Any) -> Any:
    if dtype == BYTES and isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    if dtype != BYTES and isinstance(value, int | float):
        return value
    raise ConfigError(
        f"`pad_value` must fit the column's type. Received: {value!r} for {name!r} of dtype {dtype}.",
        fix=f'Pass a number for numbers and a string for strings: pad_value={{"{name}": ...}}.',
    )
