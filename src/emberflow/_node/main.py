"""The node's entry point: say our address, hear the cluster, call your function, tell how it ended.

Started by the keeper as ``python -m emberflow._node.main FD``; FD is the control socket to the Spark task.
"""

import os
import pickle
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from emberflow._node.context import Context
from emberflow._node.frames import Channel, Message
from emberflow._node.ports import held_port
from emberflow._plan.roles import Node
from emberflow._plan.tf_config import tf_config_of

PACKAGE = str(Path(__file__).parent.parent)
VALUE_FILE = "value.pickle"
JOB_FILE = "job.pickle"


@dataclass(frozen=True, kw_only=True)
class NodeOrder:
    """What the task tells a node before anything else."""

    me: Node
    nodes: tuple[Node, ...]
    attempt: int
    host: str
    folder: str
    devices: tuple[str, ...]
    fn: bytes


def main() -> None:
    """Be one node, from its order to its last word."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    channel = Channel(sock)
    started = channel.receive()
    sys.path[:] = started["sys_path"]
    job = Path(started["folder"]) / JOB_FILE
    order: NodeOrder = pickle.loads(job.read_bytes())
    job.unlink()

    pid = os.getpid()
    answer = _work(order, channel)
    if os.getpid() != pid:
        os._exit(0)  # your function forked, and this is the child that came back: it has no say
    _flush()
    channel.send(answer)
    channel.receive()  # "leave": nobody goes before all are done, or the others' collectives break


def _work(order: NodeOrder, channel: Channel) -> Message:
    """Load your function, meet the others, call it; return the last message."""
    started = time.monotonic()
    try:
        fn = pickle.loads(order.fn)
        held, port = held_port()
        channel.send({"ready": {"tf": f"{order.host}:{port}"}})
        addresses = [endpoints["tf"] for endpoints in channel.receive()["cluster"]]
        context = _context(order, addresses, channel)
        started = time.monotonic()
        value = fn(context)
        held.close()
        return _returned(order, value, time.monotonic() - started)
    except EOFError:
        raise
    except SystemExit as leave:
        if leave.code in (None, 0):
            return _returned(order, None, time.monotonic() - started)
        return _raised(leave, f"SystemExit: your function called sys.exit({leave.code!r})", started)
    except BaseException as error:  # noqa: BLE001 - whatever it was, the driver must hear of it
        return _raised(error, _own_frames(error), started)


def _context(order: NodeOrder, addresses: list[str], channel: Channel) -> Context:
    me = order.me
    config = tf_config_of(me, order.nodes, addresses)
    if len(order.nodes) > 1:
        import json

        os.environ["TF_CONFIG"] = json.dumps(config)
    return Context(
        rank=me.rank,
        role=me.role,
        index=me.index,
        workers=sum(node.trains for node in order.nodes),
        attempt=order.attempt,
        cluster_spec=config["cluster"],
        tf_config=config,
        devices=order.devices,
        work_dir=Path(order.folder) / "work",
        _send=channel.send,
    )


def _returned(order: NodeOrder, value: Any, seconds: float) -> Message:
    """Leave the value in our folder, for the task to take."""
    try:
        data = cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - pickling runs the value's own code
        if order.me.rank != 0:
            data = cloudpickle.dumps(None)
        else:
            problem = (
                f"Your function returned a {type(value).__module__}.{type(value).__qualname__}, which cannot be "
                f"pickled: {type(error).__name__}: {error}"
            )
            fix = "Return plain values, arrays or paths; save models and tensors to storage instead."
            return {"ended": "raised", "problem": problem, "fix": fix, "exception_type": type(error).__name__}
    path = Path(order.folder) / VALUE_FILE
    path.write_bytes(data)
    return {"ended": "returned", "seconds": seconds, "value_bytes": len(data)}


def _raised(error: BaseException, problem: str, started: float) -> Message:
    fix = ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        fix = (
            f"The executors have no module {error.name!r}: install it there, or send your file with "
            f"spark.addArtifact({error.name.partition('.')[0] + '.py'!r}, pyfile=True)."
        )
    return {
        "ended": "raised",
        "problem": problem,
        "fix": fix,
        "exception_type": type(error).__name__,
        "seconds": time.monotonic() - started,
    }


def _own_frames(error: BaseException) -> str:
    """Return the traceback from the first frame that is not ours."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename.startswith(PACKAGE):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


if __name__ == "__main__":
    main()
