"""Messages come out as they went in, however the stream was cut."""

import socket
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import Gather, Join, LogLines, Quit
from emberflow._protocol.frames import MAX_FRAME, Channel, Frames, pack
from emberflow.errors import PeerError

values = st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=5)
messages = st.lists(
    st.builds(Gather, tag=st.text(), value=values) | st.builds(LogLines, text=st.text()), max_size=8
)


@settings(deadline=None)  # a busy machine may stop any call for a while
@given(messages, st.lists(st.integers(1, 40), min_size=1))
def test_messages_survive_any_cutting_of_the_stream(sent: list[Message], cuts: list[int]) -> None:
    stream = b"".join(pack(message) for message in sent)
    frames = Frames()
    received: list[Message] = []
    start = turn = 0
    while start < len(stream):
        end = start + cuts[turn % len(cuts)]
        received.extend(frames.feed(stream[start:end]))
        start, turn = end, turn + 1
    assert received == sent


def test_a_length_beyond_the_limit_is_refused_before_the_body_comes() -> None:
    with pytest.raises(PeerError, match="at most"):
        list(Frames().feed(struct.pack("!I", MAX_FRAME + 1)))


def test_a_channel_gives_one_message_at_a_time_and_then_the_end() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(pack(LogLines("a")) + pack(Join(2, "b")) + pack(Quit())[:-1])
        theirs.close()
        channel = Channel(ours)
        assert channel.receive() == LogLines("a")
        assert channel.receive() == Join(2, "b")
        with pytest.raises(EOFError):
            channel.receive()
