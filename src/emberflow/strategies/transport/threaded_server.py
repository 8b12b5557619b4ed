"""A server with one thread per authenticated connection; connections without the run's key are refused."""

import logging
import socket
import threading
from collections.abc import Callable

from emberflow._protocol.acceptor import Acceptor
from emberflow._protocol.sealed import TamperedError
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow.strategies.transport.array_connection import ArrayConnection

log = logging.getLogger("emberflow")


class ThreadedServer:
    """Serves connections from `start` to `close`.

    Args:
        listener: The listening socket. The server closes it.
        key: The run's secret.
        purpose: What connections are for.
        handle: Called with each connection, on its own thread; may raise OSError when the other side is gone.
        encrypt: Whether arrays are encrypted.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        key: bytes,
        purpose: str,
        handle: Callable[[ArrayConnection], None],
        encrypt: bool = False,
    ) -> None:
        self._listener = listener
        self._key = key
        self._purpose = purpose
        self._handle = handle
        self._encrypts = encrypt
        self._connections: set[ArrayConnection] = set()
        self._acceptor: Acceptor | None = None

    @property
    def refused(self) -> int:
        """How many connections were refused so far."""
        return 0 if self._acceptor is None else self._acceptor.refused

    def start(self) -> None:
        """Begin to serve."""
        self._acceptor = Acceptor(self._listener, key=self._key, purpose=self._purpose, admit=self._admit)

    def close(self) -> None:
        """Close all connections and the listener. May be called twice."""
        if self._acceptor is None:
            self._listener.close()
        else:
            self._acceptor.close()
        for connection in list(self._connections):
            connection.close()

    def _admit(self, sock: SealedSocket) -> None:
        connection = ArrayConnection(sock, encrypt=self._encrypts)
        self._connections.add(connection)
        threading.Thread(target=self._serve, args=(connection,), name="emberflow-peer", daemon=True).start()

    def _serve(self, connection: ArrayConnection) -> None:
        try:
            self._handle(connection)
        except OSError:
            pass  # the other side is gone
        except TamperedError as error:
            log.warning("%s", error)
        finally:
            self._connections.discard(connection)
            connection.close()
