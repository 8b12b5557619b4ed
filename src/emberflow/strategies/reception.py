"""A door that stays open: whoever proves the run's key gets a thread of its own, all others are turned away."""

import contextlib
import socket
import threading
from collections.abc import Callable

from emberflow._wire.handshake import Door, prove_as_server
from emberflow.strategies.array_wire import Wire

_LOOK = 3600.0  # the door wakes up by itself when somebody comes or it is closed


class Reception:
    """Serves connections from `start` to `close`.

    Args:
        listener: The open door. It is closed with the reception.
        key: The run's secret.
        purpose: What connections are for.
        talk: Called with each proven connection, on its thread; may raise OSError when the other side is gone.
    """

    def __init__(
        self, listener: socket.socket, *, key: bytes, purpose: str, talk: Callable[[Wire], None]
    ) -> None:
        self.refused = 0
        self._listener = listener
        self._talk = talk
        self._wires: set[Wire] = set()
        self._is_closed = False
        self._door = Door(lambda sock: prove_as_server(sock, key, purpose))
        self._thread = threading.Thread(target=self._admit, name="emberflow-reception", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the door
        self._thread.join()
        self._listener.close()
        self._door.close()
        for wire in list(self._wires):
            wire.close()

    def _admit(self) -> None:
        while not self._is_closed:
            try:
                judged = self._door.wait(self._listener, _LOOK)
            except OSError:  # closed, or a caller that is gone again
                continue
            for sock, error in judged:
                if error is not None:
                    self.refused += 1
                    continue
                thread = threading.Thread(
                    target=self._serve, args=(sock,), name="emberflow-peer", daemon=True
                )
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        wire = Wire(sock)
        self._wires.add(wire)
        try:
            self._talk(wire)
        except OSError:
            pass  # the other side is gone
        finally:
            self._wires.discard(wire)
            wire.close()
