"""The process that scores on GPUs: one per executor and set of GPUs, shared by the executor's tasks.

Spark reuses its Python workers between jobs, and TensorFlow keeps GPU memory until its process ends. So the model
runs here, in a process that ends some seconds after the last task, and at once when a node waits for one of its GPUs.
A keeper (`_keeper/main.py`) ends it with the executor and deletes its folder. `gpu_scorer` starts it.
"""

import fcntl
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from emberflow._plan import deadlines
from emberflow._protocol.acceptor import Acceptor
from emberflow._protocol.sockets import readable
from emberflow._score.child_predictor import serve
from emberflow._task.gpu_claims import claim
from emberflow._task.gpu_locks import await_unlocked
from emberflow._task.gpus import gpu_identity

PURPOSE = "score"
KEY = "key"


class GpuServer:
    """Serves connections until none is left for a while.

    Args:
        folder: Where its socket and key are; its parent is locked while a server starts or ends.
        listener: The listening socket.
        executor: Process id of the executor's JVM.
        devices: The GPUs that TensorFlow sees in this process.
    """

    def __init__(
        self, folder: Path, listener: socket.socket, executor: int, devices: tuple[str, ...]
    ) -> None:
        self._folder = folder
        self._listener = listener
        self._executor = executor
        self._devices = devices
        self._lock = threading.Lock()
        self._claiming = threading.Lock()
        self._claims: list[socket.socket] = []
        self._waiting: list[socket.socket] = []
        self._active = 0
        self._is_closed = False
        self._leave_at = time.monotonic() + deadlines.SCORER_IDLE_TIMEOUT
        self._wake_r, self._wake_w = socket.socketpair()
        key = (folder / KEY).read_bytes()
        self._acceptor = Acceptor(listener, key=key, purpose=PURPOSE, admit=self._admit)

    def run(self) -> None:
        """Serve connections; return when the server is to end."""
        while True:
            idle = not self._active
            timeout = max(self._leave_at - time.monotonic(), 0.0) if idle else None
            ready = readable([self._wake_r, *self._claims], 0.0 if idle and self._waiting else timeout)
            if self._wake_r in ready:
                self._wake_r.recv(4096)
            for held in self._claims:
                if held in ready:
                    self._waiting.append(held.accept()[0])
            is_due = bool(self._waiting) or time.monotonic() >= self._leave_at
            if not self._active and is_due and self._leave():
                return

    def _admit(self, sock: socket.socket) -> None:
        with self._lock:
            self._active += 1
        threading.Thread(target=self._serve, args=(sock,), name="emberflow-score", daemon=True).start()
        self._wake_w.send(b"x")

    def _serve(self, sock: socket.socket) -> None:
        try:
            with sock, suppress(OSError):
                serve(sock, self._claim_once)
        finally:
            with self._lock:
                self._active -= 1
                self._leave_at = time.monotonic() + deadlines.SCORER_IDLE_TIMEOUT
            self._wake_w.send(b"x")

    def _claim_once(self) -> None:
        """Claim the GPUs before TensorFlow is loaded; the claim ends with this process."""
        with self._claiming:
            for device in self._devices[len(self._claims) :]:
                claimed = claim(device)
                try:  # after the claim: a node locks its GPU and looks for claims then, so one of both sees the other
                    await_unlocked(device, gpu_identity(device, self._executor))
                except BaseException:
                    claimed.close()
                    raise
                self._claims.append(claimed)
        self._wake_w.send(b"x")

    def _leave(self) -> bool:
        """Stop listening, unless a task is connecting; tasks connect only while they hold the lock."""
        if self._is_closed:
            return True
        folder = os.open(self._folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_connecting = bool(readable([self._listener], 0.0)) or self._acceptor.pending > 0
            if not is_connecting:
                self._acceptor.close()
                self._is_closed = True
        except BlockingIOError:
            is_connecting = True
        finally:
            os.close(folder)
        if is_connecting:
            time.sleep(deadlines.SCORER_LEAVE_RETRY)
            return False
        return not self._active  # a task that was admitted in the meantime is still served


def main(folder: str, descriptor: str, executor: str, *devices: str) -> None:
    """Run a server on a socket that was opened for it."""
    GpuServer(Path(folder), socket.socket(fileno=int(descriptor)), int(executor), devices).run()
    # Without waiting for the threads of TensorFlow and of the model, so that the GPU is free sooner.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
