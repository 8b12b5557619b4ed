"""The arguments of a function as `TFEstimator` takes them, and Params that are laid over them."""

import argparse
import copy
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.ml.param import Params

from tensorflowonspark.old_errors import UsageError


class TFTypeConverters:
    """Converters beside Spark's."""

    @staticmethod
    def toDict(value: Any) -> dict[Any, Any]:
        """Return a dict itself; refuse everything else, its subclasses too, as ever."""
        if type(value) is not dict:
            raise TypeError(f"Could not convert {value} to OrderedDict. Received: {type(value).__name__}.")
        return value


class Namespace:
    """Arguments as attributes.

    Args:
        d: A dict, an ``argparse.Namespace``, another Namespace; or a list, which becomes `argv`.
    """

    argv: list[Any] | None = None

    def __init__(self, d: Any) -> None:
        if isinstance(d, list):
            self.__dict__["argv"] = d
        elif isinstance(d, Mapping):
            self.__dict__.update(d)
        elif isinstance(d, argparse.Namespace | Namespace):
            self.__dict__.update(vars(d))
        else:
            raise UsageError(
                f"Unsupported Namespace args: {d!r}. Received: {type(d).__name__}.",
                fix="Pass a dict, an argparse.Namespace or a list of arguments.",
            )

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __repr__(self) -> str:
        return f"Namespace({', '.join(f'{name}={value!r}' for name, value in sorted(vars(self).items()))})"

    def __eq__(self, other: object) -> bool:
        return hasattr(other, "__dict__") and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class TFParams(Params):
    """Arguments of your function beside Spark's Params.

    Attributes:
        args: The arguments.
    """

    args: Any = None

    def merge_args_params(self) -> Any:
        """Return a copy of the arguments, over which all Params that have a value are laid."""
        merged = copy.copy(self.args)
        for param in self.params:
            if self.isDefined(param):
                vars(merged)[param.name] = self.getOrDefault(param)
        return merged
