"""How a run without Spark ended: the same exit code for all of its tasks, and the error that names the cause."""

import json
from dataclasses import asdict, dataclass

from emberflow.errors import (
    ConfigError,
    DataError,
    EmberflowError,
    EncryptionError,
    ModelError,
    NodeFailedError,
    StorageError,
)

DONE = 0
FUNCTION_FAILED = 1
WRONG_INPUT = 2  # not started again by what `emberflow render` writes
CLUSTER_FAILED = 3  # a task was lost, or did not come: the next start may succeed


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a run ended.

    Attributes:
        code: The exit code.
        text: The error in full; "" where all is done.
    """

    code: int
    text: str = ""

    def to_bytes(self) -> bytes:
        """Return it as it travels."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Verdict":
        """Return what `to_bytes` returned."""
        found = json.loads(data)
        return cls(code=int(found["code"]), text=str(found["text"]))


def verdict_of(error: EmberflowError) -> Verdict:
    """Return the verdict of a run that failed.

    >>> verdict_of(ConfigError("a", fix="b")).code, verdict_of(EmberflowError("a", fix="b")).code
    (2, 3)
    """
    return Verdict(code=_code_of(error), text=str(error))


def _code_of(error: EmberflowError) -> int:
    if error.is_transient:
        return CLUSTER_FAILED
    if isinstance(error, NodeFailedError):
        return CLUSTER_FAILED if error.is_collateral else FUNCTION_FAILED
    is_input = isinstance(error, ConfigError | DataError | ModelError | StorageError | EncryptionError)
    return WRONG_INPUT if is_input else CLUSTER_FAILED
