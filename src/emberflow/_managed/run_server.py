"""The chief's side of what all tasks of a run are told: at first the order, at the end the verdict."""

import socket
import threading
from contextlib import suppress

from emberflow._managed.verdict import Verdict
from emberflow._plan import deadlines
from emberflow._protocol.file_transfer import send_file, send_size
from emberflow._protocol.sealed_socket import SealedSocket


class RunServer:
    """Sends the order on each authenticated connection, and the verdict on all of them.

    Connections that come before the order wait for it.
    """

    def __init__(self) -> None:
        self._order = b""
        self._is_decided = threading.Event()
        self._changed = threading.Condition()
        self._told: set[SealedSocket] = set()
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def admit(self, sock: SealedSocket) -> None:
        """Take over a connection; must not block."""
        thread = threading.Thread(target=self._tell, args=(sock,), name="emberflow-order", daemon=True)
        with self._changed:
            if self._is_closed:
                sock.close()
                return
            self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
            thread.start()

    def publish(self, order: bytes) -> None:
        """Send the order to all that have come, and that will come."""
        self._order = order
        self._is_decided.set()

    def refuse(self, tasks: int) -> None:
        """Send no order but, soon, the verdict; wait until so many tasks have come for it, but not for long."""
        self._is_decided.set()
        with self._changed:
            self._changed.wait_for(lambda: len(self._told) >= tasks, deadlines.REFUSAL_TIMEOUT)

    def close(self, verdict: Verdict) -> None:
        """Send the verdict to all, and close their connections."""
        self._is_decided.set()
        with self._changed:
            self._is_closed = True
            threads = list(self._threads)
        for thread in threads:
            thread.join(deadlines.SEND_TIMEOUT)
        with self._changed:
            told, self._told = list(self._told), set()
        for sock in told:
            with suppress(OSError):
                sock.settimeout(deadlines.VERDICT_SEND_TIMEOUT)
                _send(sock, verdict.to_bytes())
                sock.shutdown(socket.SHUT_WR)
            sock.close()

    def _tell(self, sock: SealedSocket) -> None:
        self._is_decided.wait()
        try:
            sock.settimeout(deadlines.SEND_TIMEOUT)
            _send(sock, self._order)
        except OSError:
            sock.close()
            return
        with self._changed:
            self._told.add(sock)
            self._changed.notify_all()


def _send(sock: SealedSocket, data: bytes) -> None:
    send_size(sock, len(data))
    send_file(sock, lambda size, place: data[place : place + size], len(data))
