"""Texts that all workers pass to each other, over the transport between the ranks that train."""

from typing import TYPE_CHECKING

from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from emberflow.strategies.transport.interface import Transport


def gather_texts(transport: "Transport", message: str) -> list[str]:
    """Return the text of each rank, in rank order."""
    import numpy as np

    if not isinstance(message, str):
        raise ConfigError(
            f"ctx.all_gather passes text. Received: message={message!r:.80}.",
            fix="Pass str(value), or json.dumps(value).",
        )
    pieces = transport.all_gather(np.frombuffer(message.encode(), np.uint8))
    return [piece.tobytes().decode() for piece in pieces]
