"""Storage in `ctx`: files, folders and models by the paths that the driver would understand in the same way."""

import posixpath
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from emberflow import storage
from emberflow._node.exporting import export_model
from emberflow._node.mirror import Mirror
from emberflow.storage.failures import translated

if TYPE_CHECKING:
    from emberflow._plan.path_rules import PathRules


class StorageAccess:
    """The methods of `ctx` that take a path."""

    _paths: "PathRules"
    _mirror: Mirror
    work_dir: Path
    rank: int

    def absolute_path(self, path: str) -> str:
        """Return the URL that a path means, as Spark and the driver understand it.

        A path without a scheme is on Hadoop's default file system (``fs.defaultFS``): ``/data`` is
        ``hdfs://host:8020/data``, and ``data`` is in the user's home there. Where the default is local disk, the
        result is a plain path, and relative ones start from the driver's working directory.
        """
        return self._paths.resolve(str(path))

    def open(self, path: str, mode: str = "r") -> IO[Any]:
        """Open a file on any storage, like Python's own ``open``; a folder that is missing is made for writing.

        Use it with ``with``: on object stores a file appears when it is closed.

        Args:
            path: A path or URL; see `absolute_path`.
            mode: "r", "w" or "a" for text, "rb", "wb" or "ab" for bytes.
        """
        url = self.absolute_path(path)
        fs, inside = storage.file_system(url)
        with translated(url):
            if mode[0] in "wxa":
                fs.makedirs(posixpath.dirname(inside), exist_ok=True)
            file: IO[Any] = fs.open(inside, mode)
            return file

    def mirror(self, path: str, *, fetch: bool = True) -> Path:
        """Return a local folder that is kept equal with a remote one until this node ends.

        For programs that write local files only. A file is uploaded whole once it has not changed for some seconds,
        event files of TensorBoard whenever they grew, and all at the end, also when your function raises. What is
        deleted here is deleted there. Several nodes may mirror one folder if they write different files.

        Args:
            path: A remote folder, such as ``hdfs:///user/me/logs``; see `absolute_path`. A local folder is returned
                as it is.
            fetch: Whether to download first what is there.

        Raises:
            StorageError: The folder cannot be read.
        """
        return self._mirror.folder(self.absolute_path(path), fetch=fetch, scan=True)

    def export(self, model: Any, path: str) -> str | None:
        """Write a SavedModel for serving atomically; only the chief's call does.

        Args:
            model: A Keras model, or anything that ``tf.saved_model.save`` takes.
            path: A path or URL, such as ``hdfs:///models/mnist/1``; see `absolute_path`.

        Returns:
            The URL, or None on other nodes.
        """
        return export_model(model, self.absolute_path(path), self.work_dir) if self.rank == 0 else None
