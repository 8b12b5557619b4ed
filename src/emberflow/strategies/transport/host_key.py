"""By what ranks know which of them can share memory."""

import hashlib
import os
import secrets
from pathlib import Path


def host_key() -> str:
    """Return what is equal for processes that can share memory: of one machine and user, which see each other."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        facts = f"{boot} {Path('/proc/self/ns/pid').readlink()} {os.getuid()}"
    except OSError:
        return secrets.token_hex(8)
    return hashlib.sha256(facts.encode()).hexdigest()[:16]  # short: every rank is told those of all
