"""The Spark context that old programs need, and Spark Connect does not have."""

from typing import TYPE_CHECKING

import emberflow as ef

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def active_session() -> "SparkSession":
    """Return the session that is active here, or else a new one."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def classic_context(session: "SparkSession", caller: str, *, native: str) -> "SparkContext":
    """Return the session's Spark context; refuse a session of Spark Connect.

    Args:
        session: The session.
        caller: The old name that needs the context, for the error.
        native: What does the same on Spark Connect, as a user types it.
    """
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise _refused(caller, "a session of Spark Connect", native)
    return session.sparkContext


def check_context(context: object, caller: str, *, native: str) -> None:
    """Refuse what is not a Spark context, such as a session of Spark Connect, and a context that is stopped."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if isinstance(context, SparkSession):
        raise ef.ClusterError(
            f"{caller} needs a SparkContext. Received: a SparkSession.", fix="Pass spark.sparkContext."
        )
    if not isinstance(context, SparkContext):
        kind = type(context)
        raise _refused(caller, f"an object of {kind.__module__}.{kind.__qualname__}", native)
    if context._jsc is None:  # noqa: SLF001 - the only way to know it, and a new context would be made instead
        raise ef.ClusterError(
            f"{caller} needs a SparkContext that is up. Received: one that is stopped.",
            fix="Call it before spark.stop(), or with the SparkContext of a new session.",
        )


def _refused(caller: str, received: str, native: str) -> ef.ClusterError:
    return ef.ClusterError(
        f"{caller} needs the SparkContext of a classic session; Spark Connect has none. Received: {received}.",
        fix=f"Start a classic session: SparkSession.builder.master(...). On Spark Connect use {native}.",
    )
