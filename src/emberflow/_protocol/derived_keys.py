"""The keys of one attempt: each purpose has its own, derived from the attempt's key."""

import hmac


def ranks_key(attempt_key: bytes) -> bytes:
    """Return the key of the nodes among each other."""
    return hmac.digest(attempt_key, b"ranks", "sha256")


def feed_key(ranks: bytes) -> bytes:
    """Return the key between feeding tasks and the nodes of a live cluster, from that of its ranks."""
    return hmac.digest(ranks, b"feed", "sha256")


def warm_key(ranks: bytes) -> bytes:
    """Return the key between tasks and the warm starters of an idle cluster, from that of its ranks."""
    return hmac.digest(ranks, b"warm start", "sha256")
