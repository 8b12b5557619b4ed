"""A model in a process of its own, for a task whose Python process already sees other GPUs."""

import dataclasses
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from emberflow._plan import deadlines
from emberflow._protocol.byte_blocks import receive_block, send_block
from emberflow._score.predictor import local_model_path
from emberflow._score.scoring import ScoreSpec, local_scorer
from emberflow.errors import EmberflowError, ModelError


@contextmanager
def child_scorer(spec: ScoreSpec, threads: int) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that scores a batch in a child process, which ends after the block."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "emberflow._score.child_predictor", str(theirs.fileno())]
    child = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2)
    theirs.close()
    try:
        with ours:
            yield scorer_over(ours, spec, threads)
    finally:
        try:
            child.wait(deadlines.SCORER_END_TIMEOUT)  # it ends when our side of the connection is closed
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def scorer_over(sock: socket.socket, spec: ScoreSpec, threads: int) -> Callable[[Any], Any]:
    """Load the model in the process at the other end; return a function that scores a batch there."""
    if spec.source.kind != "function":
        here = dataclasses.replace(spec.source, path=local_model_path(spec.source), file="", is_archive=False)
        spec = dataclasses.replace(spec, source=here)
    _request(sock, pickle.dumps((sys.path, pickle.dumps((spec, threads)))))
    return lambda batch: _from_bytes(_request(sock, _to_bytes(batch)))


def _request(sock: socket.socket, data: bytes) -> bytearray:
    try:
        send_block(sock, data)
        reply = receive_block(sock)
    except ConnectionError:
        reply = None
    if reply is None:
        raise ModelError(
            "The model's process exited without reporting a result.",
            fix="Look at the executor's log; if it ran out of memory, pass a smaller batch_size.",
        )
    if reply[:1] == b"!":
        raise pickle.loads(reply[1:])
    return reply[1:]


def serve(sock: socket.socket, before: Callable[[], None] = lambda: None) -> None:
    """Load the model that the first message names, then answer batches until the other side closes the connection.

    Args:
        sock: The connection to a task.
        before: Called before a model is loaded; its errors are sent to the task.
    """
    order = receive_block(sock)
    score: Callable[[Any], Any] | None = None
    while order is not None:
        try:
            if score is None:
                before()
                score, reply = local_scorer(*_spec_of(order)), b"+"
            else:
                reply = b"+" + _to_bytes(score(_from_bytes(order)))
        except EmberflowError as error:
            reply = b"!" + pickle.dumps(error)
        except Exception as error:  # noqa: BLE001 - an error of the model; the task raises it
            problem = f"The model raised {type(error).__name__}: {error}"
            reply = b"!" + pickle.dumps(
                ModelError(problem, fix="Score a few of the rows on one machine to see why.")
            )
        send_block(sock, reply)
        order = receive_block(sock)


def _spec_of(order: bytearray) -> tuple[ScoreSpec, int]:
    """Return what to load and its threads; modules are imported from the task's own paths."""
    paths, spec = pickle.loads(order)
    sys.path.extend(path for path in paths if path not in sys.path)
    loaded: tuple[ScoreSpec, int] = pickle.loads(spec)
    return loaded


def _to_bytes(batch: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _from_bytes(data: bytearray) -> Any:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)
