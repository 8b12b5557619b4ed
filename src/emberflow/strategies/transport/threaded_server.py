"""A server that stays open: whoever proves the run's key gets a thread of its own, all others are turned away."""

import socket
import threading
from collections.abc import Callable

from emberflow._protocol.acceptor import Acceptor
from emberflow.strategies.transport.array_frames import Wire


class ThreadedServer:
    """Serves connections from `start` to `close`.

    Args:
        listener: The listening socket. It is closed with the reception.
        key: The run's secret.
        purpose: What connections are for.
        talk: Called with each proven connection, on its thread; may raise OSError when the other side is gone.
    """

    def __init__(
        self, listener: socket.socket, *, key: bytes, purpose: str, talk: Callable[[Wire], None]
    ) -> None:
        self._listener = listener
        self._key = key
        self._purpose = purpose
        self._talk = talk
        self._wires: set[Wire] = set()
        self._acceptor: Acceptor | None = None

    @property
    def refused(self) -> int:
        """How many connections were turned away so far."""
        return 0 if self._acceptor is None else self._acceptor.refused

    def start(self) -> None:
        """Begin to serve."""
        self._acceptor = Acceptor(self._listener, key=self._key, purpose=self._purpose, admit=self._admit)

    def close(self) -> None:
        """Hang up on everybody. May be called twice."""
        if self._acceptor is None:
            self._listener.close()
        else:
            self._acceptor.close()
        for wire in list(self._wires):
            wire.close()

    def _admit(self, sock: socket.socket) -> None:
        wire = Wire(sock)
        self._wires.add(wire)
        threading.Thread(target=self._serve, args=(wire,), name="emberflow-peer", daemon=True).start()

    def _serve(self, wire: Wire) -> None:
        try:
            self._talk(wire)
        except OSError:
            pass  # the other side is gone
        finally:
            self._wires.discard(wire)
            wire.close()
