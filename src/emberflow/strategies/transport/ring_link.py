"""Frames between one rank and two others, at one distance to its left and to its right.

Data flows to the right. The same sockets carry one notice back to the left when a rank ends, so that the reasons
can be distinguished: finished (BYE), failed because of another rank (ABORT, with the number of that rank), or dead
(no notice). A rank that waits too long notifies its right neighbour (WAITING); a rank without any notice is stuck.

Headers and notices are sealed records (`_protocol/sealed.py`), always; data are where the run encrypts.
"""

import contextlib
import select
import socket
import struct
from collections.abc import Sequence

from emberflow._plan import deadlines
from emberflow._protocol.sealed import CHUNK, TAG, TamperedError
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow.errors import PeerError
from emberflow.strategies.transport.frame_sender import FrameSender
from emberflow.strategies.transport.peers import ALTERED, Peers

_HEADER = struct.Struct("!BxHIQ")  # kind, tag (for ABORT a rank), number of the exchange, bytes that follow
_DATA, _WAITING, _ABORT, _BYE = range(1, 5)
_FINISHED = "has finished already"
_GONE = "exited without reporting a result"


class RingLink:
    """Sends to the right neighbour and receives from the left one at the same time.

    Args:
        peers: All links of this rank, of which this will be one.
        left: The left neighbour's rank and the connection from it.
        right: The right neighbour's rank and the connection to it.
        encrypt: Whether data are encrypted.
    """

    def __init__(
        self,
        peers: Peers,
        *,
        left: tuple[int, SealedSocket],
        right: tuple[int, SealedSocket],
        encrypt: bool = False,
    ) -> None:
        self.peers = peers
        self.left_rank, self._left = left
        self.right_rank, self._right = right
        self._exchange = 0
        self._tag = 0
        self._encrypts = encrypt
        self._head_in = memoryview(bytearray(_HEADER.size + TAG))
        self._record_in = memoryview(bytearray(CHUNK + TAG if encrypt else 0))
        self._sender = FrameSender(self._right, encrypt=encrypt)
        self._is_overdue = False
        self._right_finished = False
        for sock in (self._left, self._right):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poller = select.poll()
        self._poller.register(self._left, select.POLLIN)
        self._poller.register(self._right, select.POLLIN | select.POLLRDHUP)
        peers.links.append(self)

    def send(self, data: Sequence[memoryview], tag: int = 0) -> None:
        """Start to send one frame; `receive` and `flush` continue it. `data` must not change until it is sent.

        The tag (16 bits) identifies what is sent: ranks that do not send the same in this exchange are out of step.
        """
        self._tag = tag & 0xFFFF
        self._exchange += 1
        self._is_overdue = False
        size = sum(piece.nbytes for piece in data)
        header = _HEADER.pack(_DATA, self._tag, self._exchange & 0xFFFFFFFF, size)
        self._sender.begin(header, data)
        self._push()

    def receive_size(self) -> int:
        """Wait for the left neighbour's frame of this exchange; return how many bytes follow."""
        kind, culprit, exchange, size = self._receive_header()
        while kind == _WAITING:  # it waited long, but continues
            kind, culprit, exchange, size = self._receive_header()
        if kind != _DATA:
            raise self.fail(*self._ended(self.left_rank, kind, culprit))
        if (exchange, culprit) != (self._exchange & 0xFFFFFFFF, self._tag):
            raise self._out_of_step(f"exchange {exchange} instead of {self._exchange}, or other shapes")
        self._is_overdue = False
        return int(size)

    def expect(self, size: int) -> None:
        """Wait for the left neighbour's frame of this exchange, which must have this size."""
        got = self.receive_size()
        if got != size:
            raise self._out_of_step(f"{got} bytes instead of {size}")

    def receive(self, into: memoryview) -> None:
        """Fill `into` with data of the left neighbour, sending what is unsent meanwhile.

        Where a piece of a frame is received in several calls, each but the last must ask for a multiple of `CHUNK`.
        """
        if not self._encrypts:
            self._fill(into)
            return
        for start in range(0, into.nbytes, CHUNK):
            content = into[start : start + CHUNK]
            record = self._record_in[: content.nbytes + TAG]
            self._fill(record)
            try:
                self._left.opener.open_into(record, content)
            except TamperedError:
                raise self.fail(self.left_rank, ALTERED) from None

    def _fill(self, into: memoryview) -> None:
        filled = 0
        while filled < into.nbytes:
            try:
                got = self._left.recv_into(into[filled:])
            except BlockingIOError:
                if self._sender.is_busy:
                    self._push()
                self._wait()
                continue
            except OSError:
                got = 0
            if got == 0:
                raise self.fail(self.left_rank, _GONE)
            filled += got
            if self._sender.is_busy:
                self._push()

    def flush(self) -> None:
        """Wait until everything is sent."""
        while self._sender.is_busy:
            self._push()
            if self._sender.is_busy:
                self._wait(only_send=True)

    def fail(self, culprit: int, what: str) -> PeerError:
        """Close all links of this rank, and return the error for this and all later calls."""
        return self.peers.fail(culprit, what, self._exchange)

    def abort(self, culprit: int) -> None:
        """Tell both neighbours which rank failed, and close."""
        self._notify(_ABORT, culprit)
        self._close()

    def finish(self) -> None:
        """Tell both neighbours that this rank has finished, and close."""
        self._notify(_BYE, self.peers.rank)
        self._close()

    def say_waiting(self) -> None:
        """Tell the right neighbour that this rank is alive and waits for others."""
        self._notify_right(_WAITING, self.peers.rank)

    def _receive_header(self) -> tuple[int, int, int, int]:
        self._fill(self._head_in)
        try:
            return _HEADER.unpack(self._left.opener.open(self._head_in))
        except TamperedError:
            raise self.fail(self.left_rank, ALTERED) from None

    def _push(self) -> None:
        """Send what the kernel accepts."""
        try:
            self._sender.push()
        except BlockingIOError:
            return
        except OSError:
            raise self.fail(*self._read_notice_of_right()) from None

    def _wait(self, *, only_send: bool = False) -> None:
        """Wait until a socket is ready; a neighbour's end, or nothing for `timeout` seconds, is an error."""
        if self._poll(
            2 * deadlines.RING_WAITING_GRACE if self._is_overdue else self.peers.timeout, only_send=only_send
        ):
            return
        silence = f"did not answer for {self.peers.timeout:g} s (exchange_timeout)"
        if only_send:
            raise self.fail(self.right_rank, silence)
        if self._is_overdue:
            raise self.fail(self.left_rank, "waits for others and does not continue")
        # The left neighbour may wait for another rank: then it reaches its own timeout now and notifies us.
        self._is_overdue = True
        self.peers.say_waiting()
        if not self._poll(deadlines.RING_WAITING_GRACE):
            raise self.fail(self.left_rank, silence)

    def _poll(self, timeout: float, *, only_send: bool = False) -> bool:
        right = 0 if self._right_finished else select.POLLIN | select.POLLRDHUP
        self._poller.modify(self._right, right | (select.POLLOUT if self._sender.is_busy else 0))
        self._poller.modify(self._left, 0 if only_send else select.POLLIN)
        events = dict(self._poller.poll(timeout * 1000))
        if events.get(self._right.fileno(), 0) & ~select.POLLOUT and self._left.fileno() not in events:
            self._check_right()  # else data from the left comes first: it may be all that is missing
        return bool(events)

    def _check_right(self) -> None:
        """The right neighbour has ended. That is no error if it has all its data, as after the last exchange."""
        culprit, what = self._read_notice_of_right()
        if what != _FINISHED or self._sender.is_busy:
            raise self.fail(culprit, what)
        self._right_finished = True

    def _read_notice_of_right(self) -> tuple[int, str]:
        try:
            notice = self._right.recv(_HEADER.size + TAG)
        except OSError:
            notice = b""
        if len(notice) < _HEADER.size + TAG:
            return self.right_rank, _GONE
        try:
            kind, culprit, _, _ = _HEADER.unpack(self._right.opener.open(notice))
        except TamperedError:
            return self.right_rank, ALTERED
        return self._ended(self.right_rank, kind, culprit)

    @staticmethod
    def _ended(neighbour: int, kind: int, culprit: int) -> tuple[int, str]:
        if kind == _ABORT:
            return culprit, "failed or did not answer"
        if kind == _BYE:
            return neighbour, _FINISHED
        return neighbour, "sent an unknown frame; all nodes must run the same version of emberflow"

    def _out_of_step(self, what: str) -> PeerError:
        return self.fail(self.left_rank, f"is at another step, or has another model ({what})")

    def _notify(self, kind: int, culprit: int) -> None:
        self._notify_right(kind, culprit)
        with contextlib.suppress(OSError):
            self._left.send(self._left.sealer.seal(_HEADER.pack(kind, culprit, 0, 0)))

    def _notify_right(self, kind: int, culprit: int) -> None:
        if (
            not self._sender.is_busy
        ):  # else the notice would be read as data; the end of the stream must suffice
            self._sender.begin(_HEADER.pack(kind, culprit, 0, 0))
            with contextlib.suppress(OSError):
                self._sender.push()

    def _close(self) -> None:
        for sock in (self._left, self._right):
            with contextlib.suppress(OSError):
                sock.shutdown(
                    socket.SHUT_RDWR
                )  # wakes a thread that waits for it, which `close` alone does not
            sock.close()
