"""The attendant: the process that runs a live node as a Spark task runs one, and outlives that task.

Started by the task (`live_task`) as ``python -m emberflow._task.attendant``, in a session of its own. On its standard
input it receives the order, and later one byte that releases it: until then it ends with the task. On its standard
output it says once that its node is up, or why it cannot be. Once released it ends with its node, which the keeper
ends with the executor, or when the connection to the driver closes.
"""

import os
import pickle
import struct
import sys
import threading
import traceback
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass

from emberflow._protocol.codec import Message
from emberflow._protocol.frames import send
from emberflow._protocol.messages import encode
from emberflow._protocol.node_messages import NodeRefused, NodeUp
from emberflow._task.events import QuitError
from emberflow._task.node_setup import Surroundings, run_node
from emberflow._task.node_task import NodeOutcomeError, crashed, dial_driver
from emberflow._task.task_spec import TaskSpec
from emberflow._task.value_client import ValueClient

RELEASE = b"\n"
_SIZE = struct.Struct("!Q")
_INPUT, _OUTPUT = 0, 1


@dataclass(frozen=True, kw_only=True)
class AttendantOrder:
    """What the task sends to its attendant.

    Attributes:
        spec: What the task was sent.
        rank: The rank of its node.
        surroundings: What Spark gives to the task; the attendant has inherited the descriptors.
        sys_path: Where the task's Python finds modules.
    """

    spec: TaskSpec
    rank: int
    surroundings: Surroundings
    sys_path: list[str]


def packed(order: AttendantOrder) -> bytes:
    """Return an order as the bytes that an attendant reads."""
    data = pickle.dumps(order)
    return _SIZE.pack(len(data)) + data


def main() -> None:
    """Run the node that the order on standard input describes; return when nothing of it is left."""
    order: AttendantOrder = pickle.loads(_read_exactly(*_SIZE.unpack(_read_exactly(_SIZE.size))))
    sys.path[:] = order.sys_path
    threading.Thread(target=_await_release, name="emberflow-release", daemon=True).start()
    _attend(order)


def _attend(order: AttendantOrder) -> None:
    spec, host = order.spec, order.surroundings.host
    me = spec.plan.nodes[order.rank]
    try:
        driver = dial_driver(spec, me, host)
    except NodeOutcomeError as error:
        _answer(NodeRefused(error.problem))
        return
    except QuitError:
        return
    assert driver is not None  # noqa: S101 - a live plan always has the driver's address, for the type checker
    values = ValueClient(spec.values, spec.plan, spec.key, me.rank, has_driver=True, is_late=True)
    with closing(driver), closing(values):
        try:
            _, value = run_node(
                spec, me, order.surroundings, driver, iter(()), values, on_joined=lambda: _answer(NodeUp())
            )
        except QuitError:
            return
        except Exception as error:  # noqa: BLE001 - else the driver would believe that this process was killed
            traceback.print_exc()
            with suppress(OSError):
                send(driver, crashed(me, host, error))
            return
        with value or nullcontext():
            pass  # the driver has it


def _await_release() -> None:
    """End at once when the task ends before it has released this process: the keeper then kills the node."""
    if os.read(_INPUT, 1) != RELEASE:
        os._exit(1)


def _answer(message: Message) -> None:
    """Tell the task, once, and close the pipe."""
    with suppress(BrokenPipeError):
        os.write(_OUTPUT, encode(message) + b"\n")
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a descriptor is needed
        os.dup2(nowhere.fileno(), _OUTPUT)


def _read_exactly(size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = os.read(_INPUT, size - len(data))
        if not part:
            sys.exit(0)  # the task exited before it sent its order
        data += part
    return bytes(data)


if __name__ == "__main__":
    main()
