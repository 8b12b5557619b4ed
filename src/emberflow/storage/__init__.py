"""Files and folders on local disk, HDFS and object stores, through one small set of functions.

A path is a local path (``/data/x``, ``x``, ``file:/data/x``) or any URL that fsspec supports (``hdfs://``,
``s3://``, ``gs://``, ``memory://``). Returned paths have the form of the path that was passed in. Files and folders
are published atomically; on local disk they also survive a power failure. Hadoop's settings of this process say how
a store is reached (`apply_settings`).
"""

from emberflow.storage.durable import sync_folder
from emberflow.storage.files import (
    delete,
    exists,
    glob,
    is_folder,
    list_folder,
    open_file,
    publish,
    read_bytes,
    rename,
    write_bytes,
)
from emberflow.storage.folders import (
    StoredFile,
    get_folder,
    is_complete,
    list_files,
    put_folder,
    reading_folder,
    remove_folder,
)
from emberflow.storage.location import RENAMING, file_system, is_local, join, local_path, protocol_of, sibling
from emberflow.storage.settings import StorageSettings, apply_settings, current_settings

__all__ = [
    "RENAMING",
    "StorageSettings",
    "StoredFile",
    "apply_settings",
    "current_settings",
    "delete",
    "exists",
    "file_system",
    "get_folder",
    "glob",
    "is_complete",
    "is_folder",
    "is_local",
    "join",
    "list_files",
    "list_folder",
    "local_path",
    "open_file",
    "protocol_of",
    "publish",
    "put_folder",
    "read_bytes",
    "reading_folder",
    "remove_folder",
    "rename",
    "sibling",
    "sync_folder",
    "write_bytes",
]
