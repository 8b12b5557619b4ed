"""By what ranks know which of them can share memory."""

import os
import secrets
from pathlib import Path


def host_key() -> str:
    """Return what is equal for processes that can share memory: the machine, the processes they see, the user."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()} {os.getuid()}"
    except OSError:
        return f"alone {secrets.token_hex(16)}"
