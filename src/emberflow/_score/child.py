"""A model in a process of its own, for a task whose Python process already sees other GPUs."""

import dataclasses
import io
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from emberflow._score.predictor import located
from emberflow._score.scoring import ScoreSpec, local_scorer
from emberflow.errors import EmberflowError, ModelError

END_TIMEOUT = 10.0
_SIZE = struct.Struct("!Q")


@contextmanager
def child_scorer(spec: ScoreSpec, threads: int) -> Iterator[Callable[[Any], Any]]:
    """Give a function that scores a batch in a process with this one's environment; end it after the block."""
    if spec.source.kind != "function":
        here = dataclasses.replace(spec.source, path=located(spec.source), file="", is_archive=False)
        spec = dataclasses.replace(spec, source=here)
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "emberflow._score.child", str(theirs.fileno())]
    child = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2)
    theirs.close()
    try:
        with ours, ours.makefile("rwb") as wire:
            _send(wire, pickle.dumps((spec, threads)))
            _answer(wire)  # loaded

            def score(batch: Any) -> Any:
                _send(wire, _to_bytes(batch))
                return _from_bytes(_answer(wire))

            yield score
    finally:
        try:
            child.wait(END_TIMEOUT)  # it ends at the end of our side of the wire
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _answer(wire: io.BufferedRWPair) -> bytes:
    reply = _receive(wire)
    if reply is None:
        raise ModelError(
            "The model's process ended without a word.",
            fix="Look at the executor's log; if it was out of memory, pass a smaller batch_size.",
        )
    if reply[:1] == b"!":
        raise pickle.loads(reply[1:])
    return reply[1:]


def serve(wire: io.BufferedRWPair) -> None:
    """Load the model that the first message names, then answer batches until the wire ends."""
    order = _receive(wire)
    score: Callable[[Any], Any] | None = None
    while order is not None:
        try:
            if score is None:
                score, reply = local_scorer(*pickle.loads(order)), b"+"
            else:
                reply = b"+" + _to_bytes(score(_from_bytes(order)))
        except EmberflowError as error:
            reply = b"!" + pickle.dumps(error)
        except Exception as error:  # noqa: BLE001 - the model's own; the task raises it
            problem = f"The model raised {type(error).__name__}: {error}"
            reply = b"!" + pickle.dumps(
                ModelError(problem, fix="Score a few of the rows on one machine to see why.")
            )
        _send(wire, reply)
        order = _receive(wire)


def _send(wire: io.BufferedRWPair, data: bytes) -> None:
    wire.write(_SIZE.pack(len(data)))
    wire.write(data)
    wire.flush()


def _receive(wire: io.BufferedRWPair) -> bytes | None:
    head = wire.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    return wire.read(*_SIZE.unpack(head))


def _to_bytes(batch: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _from_bytes(data: bytes) -> Any:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as end, end.makefile("rwb") as both:
        serve(both)
