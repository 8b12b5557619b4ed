"""The run's key, with which its tasks authenticate each other: read from a file that nobody else may read."""

import stat
from collections.abc import Mapping
from pathlib import Path

from emberflow.errors import ConfigError

VARIABLE = "EMBERFLOW_KEY_FILE"
LEAST = 16  # bytes; fewer could be guessed by whoever records a handshake
FIX = "Create one with `openssl rand -hex 32 > run.key && chmod 600 run.key`, and name it as `key_secret` of the job."


def read_key(environment: Mapping[str, str]) -> bytes:
    """Return the key; no error contains any of it.

    Raises:
        ConfigError: There is none, it cannot be read, others can read it, or it is too short.
    """
    name = environment.get(VARIABLE)
    if not name:
        raise ConfigError(
            f"The tasks of a run authenticate each other with a key. Received: {VARIABLE} is not set.",
            fix=FIX,
        )
    path = Path(name)
    try:
        mode = path.stat().st_mode
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"The run's key must be readable for this process. Received: {VARIABLE}={name}, {error.strerror}.",
            fix="Let the file belong to the user of the container: chown 10001 for the image of docker/Dockerfile."
            if isinstance(error, PermissionError)
            else FIX,
        ) from error
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(
            "The run's key must be readable for its user and group only. "
            f"Received: {VARIABLE}={name} with mode {stat.S_IMODE(mode):o}.",
            fix=f"chmod o= {name}; in Kubernetes `defaultMode: 0440` and an fsGroup, as `emberflow render` writes.",
        )
    if len(key) < LEAST:
        raise ConfigError(
            f"The run's key must have at least {LEAST} bytes. Received: {len(key)} in {VARIABLE}={name}.",
            fix=FIX,
        )
    return key
