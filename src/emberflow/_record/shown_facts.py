"""What a reader is told of a run's options and of its plan, in words."""

from collections.abc import Mapping
from typing import Any

from emberflow._record.json_values import json_values

OF_NO_USE = ("page", "verbose")  # how the run was watched, not what it did
PLAN_NAMES = {
    "strategy": "strategy",
    "transport": "transport",
    "gpus": "GPUs per worker",
    "encrypt": "encrypted",
}
STARTS = {"barrier": "all tasks at the same time", "independent": "each task when it has a slot"}
MEETINGS = {"driver": "at the driver", "barrier": "by Spark's barrier"}


def shown_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that say something of the run, as JSON has them."""
    return {name: json_values(value) for name, value in options.items() if name not in OF_NO_USE}


def shown_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan as people read it.

    >>> shown_plan({"launch": "barrier", "launch_reason": "", "gpus": 0, "encrypt": False, "is_live": False})
    {'GPUs per worker': 0, 'encrypted': 'no', 'nodes start': 'all tasks at the same time'}
    """
    found = {name: _in_words(plan[key]) for key, name in PLAN_NAMES.items() if key in plan}
    if launch := plan.get("launch"):
        # With a barrier the reason is that nothing speaks against it.
        reason = f" ({plan['launch_reason']})" if launch != "barrier" and plan.get("launch_reason") else ""
        found["nodes start"] = STARTS.get(launch, launch) + reason
    if meeting := plan.get("rendezvous"):
        found["nodes meet"] = MEETINGS.get(meeting, meeting)
    return found


def _in_words(value: Any) -> Any:
    return ("yes" if value else "no") if isinstance(value, bool) else json_values(value)
