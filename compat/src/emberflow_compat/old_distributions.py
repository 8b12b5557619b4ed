"""Two distributions that own one folder: an old library that is installed beside its replacement."""

from importlib import metadata

from emberflow.errors import EmberflowError


class OldDistributionError(EmberflowError, ImportError):
    """The old library is installed too; its files and ours are in one folder."""


def check_replaced(distribution: str) -> None:
    """Refuse to be imported while the old distribution is installed: the folder may hold files of both.

    Args:
        distribution: The name under which the old library is installed, such as "tensorflowonspark".

    Raises:
        OldDistributionError: It is installed.
    """
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return
    raise OldDistributionError(
        f"emberflow-compat replaces {distribution}, so only one of them may be installed. "
        f"Received: {distribution} {version} beside it.",
        fix=f"pip uninstall --yes {distribution} emberflow-compat && pip install emberflow-compat",
    )
