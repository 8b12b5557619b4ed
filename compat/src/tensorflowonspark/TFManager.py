"""Queues and values that several processes of one machine share: for programs that start a manager themselves.

`TFCluster` has no need of it. A manager listens on this machine only, and takes nothing from a process that cannot
prove that it knows the key.
"""

import queue
import threading
from multiprocessing.managers import BaseManager
from typing import Any


class TFManager(BaseManager):
    """A connection to shared queues (`get_queue`) and values (`get`, `set`)."""


class _Shared:
    """What one manager holds."""

    def __init__(self, names: list[str]) -> None:
        self._queues: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in names}
        self._values: dict[str, Any] = {}

    def get_queue(self, name: str) -> "queue.Queue[Any] | None":
        return self._queues.get(name)

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value


for _name in ("get_queue", "get", "set"):
    TFManager.register(_name)


def start(authkey: bytes | str, queues: list[str], mode: str = "local") -> TFManager:
    """Start a manager in this process, and return a connection to it.

    Args:
        authkey: What others must know to connect.
        queues: The names of its queues.
        mode: "local": a Unix socket; "remote": a port of this machine's loopback address.
    """
    key = authkey.encode() if isinstance(authkey, str) else bytes(authkey)
    shared = _Shared(queues)

    class Served(BaseManager):
        """Knows the objects of this manager; `TFManager` only their names."""

    for name in ("get_queue", "get", "set"):
        Served.register(name, getattr(shared, name))
    server = Served(("127.0.0.1", 0) if mode == "remote" else None, key).get_server()
    server.stop_event = threading.Event()  # type: ignore[attr-defined]
    threading.Thread(target=server.accepter, name="tensorflowonspark-manager", daemon=True).start()
    return connect(server.address, key)


def connect(address: Any, authkey: bytes | str) -> TFManager:
    """Return a connection to a manager that runs already."""
    key = authkey.encode() if isinstance(authkey, str) else bytes(authkey)
    manager = TFManager(tuple(address) if isinstance(address, list) else address, key)
    manager.connect()
    return manager
