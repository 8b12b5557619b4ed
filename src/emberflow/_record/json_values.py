"""Values as the JSON of page, report and list has them: numbers that JSON does not know are text there."""

import math
from collections.abc import Mapping
from typing import Any


def json_number(value: float) -> float | str:
    """Return a number; "nan", "inf" or "-inf" where JSON has none.

    >>> json_number(0.5), json_number(float("nan")), json_number(float("-inf"))
    (0.5, 'nan', '-inf')
    """
    return value if math.isfinite(value) else str(float(value))


def json_values(value: Any) -> Any:
    """Return plain values with every number in them as `json_number` has it.

    >>> json_values({"timeout": float("inf"), "units": [8, 16]})
    {'timeout': 'inf', 'units': [8, 16]}
    """
    if isinstance(value, Mapping):
        return {name: json_values(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(each) for each in value]
    return json_number(value) if isinstance(value, float) else value
