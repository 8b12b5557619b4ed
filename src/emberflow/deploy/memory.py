"""Amounts of memory as Kubernetes writes them, in the units of the others."""

import re

_UNITS = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}


def mebibytes(text: str) -> int | None:
    """Return an amount of memory in MiB, rounded down; None if it is not one.

    >>> mebibytes("2Gi"), mebibytes("1.5Gi"), mebibytes("512Mi"), mebibytes("4 GB"), mebibytes("0Gi")
    (2048, 1536, 512, None, None)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti)", text)
    return int(float(found[1]) * _UNITS[found[2]]) or None if found else None
