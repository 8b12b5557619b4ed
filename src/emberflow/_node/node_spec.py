"""What a node receives from its task before anything else, and how: in memory, since it holds a key."""

import os
import pickle
import socket
from dataclasses import dataclass, field

import cloudpickle

from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node
from emberflow._protocol.sealed_file import LocalFile
from emberflow.storage import StorageSettings

VALUE_FILE = "value.pickle"
BACKLOG = 256 << 20  # bytes of a stream's rows that wait on a node's disk: some minutes of most trainings


@dataclass(frozen=True, kw_only=True)
class LiveSpec:
    """How a node of a live cluster takes rows.

    Attributes:
        jvm: Process id of the executor's JVM, by which feeding tasks find the node of their own executor.
        spool_dir: The folder of spools; None takes the node's own folder.
        spool_limit: Most bytes of one spool.
        backlog: Bytes of a stream that may wait to be taken; no partition is accepted above that.
    """

    jvm: int = 0
    spool_dir: str | None = None
    spool_limit: int | None = None
    backlog: int = BACKLOG


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """One node's part of the plan, and what it needs for that.

    Attributes:
        me: Which node it is.
        plan: The whole plan.
        host: Its host, as Spark names it.
        folder: Its own folder.
        devices: Its GPUs.
        data: Names of the data that will be handed over.
        streams: Whether it is a stream, to be read once.
        key: With which ranks authenticate each other.
        fn: Your function, pickled; or
        fn_file: the file with it, where it is large.
        storage: Hadoop's settings, with which it opens URLs; they may hold secrets.
        live: How it takes rows where it belongs to a live cluster, else None.
        tf_port: TensorFlow's port where others know it already; 0: any port that the plan allows.
    """

    me: Node
    plan: RunPlan
    host: str
    folder: str
    devices: tuple[str, ...]
    data: tuple[str, ...] = ()
    streams: bool = False
    key: bytes = field(repr=False)
    fn: bytes = field(repr=False)
    fn_file: LocalFile | None = None
    storage: StorageSettings = field(default_factory=StorageSettings)
    live: LiveSpec | None = None
    tf_port: int = 0


def send_spec(sock: socket.socket, spec: NodeSpec) -> None:
    """Send a spec over a Unix socket without waiting for the node: as the descriptor of a file in memory."""
    with os.fdopen(os.memfd_create("emberflow-node-spec"), "w+b") as file:
        cloudpickle.dump(spec, file)
        file.flush()
        socket.send_fds(sock, [b"\0"], [file.fileno()])


def receive_spec(sock: socket.socket) -> NodeSpec:
    """Return what `send_spec` sent."""
    _, (fd,), _, _ = socket.recv_fds(sock, 1, 1)
    with os.fdopen(fd, "rb") as file:
        file.seek(0)  # both processes share the position
        spec: NodeSpec = pickle.load(file)
        return spec
