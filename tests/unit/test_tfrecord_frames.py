"""Frames: what is written, and what is said of a file that is broken at any byte."""

import gzip
import io
import random
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from emberflow.errors import DataError
from emberflow.tfrecord.codec.record_frames import (
    Chunk,
    FrameRules,
    frame_one,
    length_checksums,
    masked,
    read_chunks,
)
from emberflow.tfrecord.compression import CODECS
from emberflow.tfrecord.record_files import first_record, read_file, writing

SMALL = FrameRules(chunk_bytes=64)
PAYLOADS = [b"", b"a", b"record two", b"\x00" * 40, b"the last one"]
FILE = b"".join(map(frame_one, PAYLOADS))


def read(data: bytes, rules: FrameRules = SMALL) -> tuple[list[bytes], list[int], DataError | None]:
    """Return payloads that are right, numbers of the corrupt ones, and why reading ended."""
    return collect(read_chunks(io.BytesIO(data), rules))


def collect(chunks: Any) -> tuple[list[bytes], list[int], DataError | None]:
    good: list[bytes] = []
    corrupt: list[int] = []
    count, broken = 0, None
    for chunk in chunks:
        assert isinstance(chunk, Chunk)
        assert broken is None, "nothing comes after a broken chunk"
        wrong = set(chunk.corrupt.tolist())
        good += [chunk.payload(row) for row in range(len(chunk.starts)) if row not in wrong]
        corrupt += [count + row for row in sorted(wrong)]
        count += len(chunk.starts)
        broken = chunk.broken
    return good, corrupt, broken


def test_known_records_have_the_known_bytes() -> None:
    # Written by TensorFlow 2.21: tf.io.TFRecordWriter(path), .write(b"abc"), .write(b"")
    known = "0300000000000000b099490e6162636e57f121000000000000000029039807d8ea82a2"
    assert (frame_one(b"abc") + frame_one(b"")).hex() == known
    assert masked(0x364B3FB7) == 0x21F1576E, "the published CRC-32C of abc"


def test_checksums_of_lengths_in_numpy_are_those_of_the_library() -> None:
    lengths = np.array([0, 1, 255, 256, 65535, 1 << 30, (1 << 63) - 1], np.uint64)
    expected = [masked(google_crc32c.value(struct.pack("<Q", length))) for length in lengths.tolist()]
    assert length_checksums(lengths).tolist() == expected


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 1 << 20])
def test_all_records_come_back_whatever_the_chunks(chunk_bytes: int) -> None:
    assert read(FILE, FrameRules(chunk_bytes=chunk_bytes)) == (PAYLOADS, [], None)


def test_an_empty_file_has_no_records() -> None:
    assert read(b"") == ([], [], None)


@pytest.mark.parametrize("verify", [True, False])
def test_a_file_cut_at_any_byte_gives_whole_records_and_an_error(verify: bool) -> None:
    edges = np.cumsum([0] + [len(payload) + 16 for payload in PAYLOADS]).tolist()
    for cut in range(len(FILE)):
        good, corrupt, broken = read(FILE[:cut], FrameRules(chunk_bytes=64, verify=verify))
        whole = sum(edge <= cut for edge in edges[1:])
        assert good == PAYLOADS[:whole]
        assert not corrupt
        assert (broken is None) == (cut in edges), f"cut at byte {cut}"
        assert broken is None or "middle of a record" in str(broken)


def test_any_flipped_bit_is_found() -> None:
    for place in range(len(FILE)):
        for bit in range(8):
            data = bytearray(FILE)
            data[place] ^= 1 << bit
            good, corrupt, broken = read(bytes(data))
            assert corrupt or broken, f"bit {bit} of byte {place}"
            assert all(payload in PAYLOADS for payload in good), "never a wrong record"


def test_a_wrong_payload_is_one_record_and_reading_goes_on() -> None:
    data = bytearray(FILE)
    data[16 + 12] ^= 1  # the payload of the second record
    good, corrupt, broken = read(bytes(data))
    assert (good, corrupt, broken) == ([PAYLOADS[0], *PAYLOADS[2:]], [1], None)
    assert read(bytes(data), FrameRules(verify=False))[0][1] == b"`", "as asked, nothing is checked"


def test_a_length_of_two_gigabytes_is_refused_before_anything_is_allocated() -> None:
    head = struct.pack("<Q", 2 << 30)
    data = FILE + head + struct.pack("<I", masked(google_crc32c.value(head))) + bytes(100)
    tracemalloc.start()
    good, _, broken = read(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert good == PAYLOADS
    assert "maxRecordBytes" in str(broken)
    assert f"Received: a length of {2 << 30} at byte {len(FILE)}" in str(broken)
    assert peak < 1 << 20
    allowed = read(data, FrameRules(chunk_bytes=64, max_record_bytes=4 << 30))[2]
    assert "middle of a record" in str(allowed), "a promise of gigabytes is not believed either"


def test_a_record_larger_than_the_buffer_is_read() -> None:
    large = random.Random(7).randbytes(100_000)
    assert read(frame_one(b"x") + frame_one(large) + frame_one(b"y"))[0] == [b"x", large, b"y"]


class ReadOnly(io.RawIOBase):
    """A file as hdfs-native opens it: `read` works, and `readinto` is inherited and raises NotImplementedError."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._data.read(size)

    def seek(self, offset: int, whence: int = 0) -> None:  # type: ignore[override] # it returns nothing there
        self._data.seek(offset, whence)

    def tell(self) -> int:
        return self._data.tell()


def test_a_file_without_readinto_is_read() -> None:
    assert collect(read_chunks(ReadOnly(FILE), SMALL)) == read(FILE)


def test_a_file_whose_seek_returns_nothing_is_read_in_parts() -> None:
    assert (
        first_record(ReadOnly(FILE), 1, SMALL)
        == first_record(io.BytesIO(FILE), 1, SMALL)
        == len(frame_one(b""))
    )


def inflated(data: bytes, codec: str = "gzip") -> Any:
    make = CODECS[codec].reading
    assert make is not None
    return make(io.BytesIO(data))


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_files_and_each_way_to_cut_them(compression: Any) -> None:
    data = gzip.compress(FILE) if compression == "gzip" else zlib.compress(FILE)
    assert collect(read_chunks(inflated(data, compression), SMALL)) == (PAYLOADS, [], None)
    for cut in range(1, len(data)):
        good, _, broken = collect(read_chunks(inflated(data[:cut], compression), SMALL))
        assert good == PAYLOADS[: len(good)]
        assert broken is not None
        assert "cut short" in str(broken)
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0xFF
    good, _, broken = collect(read_chunks(inflated(bytes(flipped), compression), SMALL))
    assert broken is not None
    assert all(payload in PAYLOADS for payload in good)


def test_joined_gzip_files_are_one_file() -> None:
    data = gzip.compress(FILE) + gzip.compress(frame_one(b"more"))
    assert collect(read_chunks(inflated(data), SMALL))[0] == [*PAYLOADS, b"more"]


def test_an_exploding_gzip_is_refused_in_little_memory() -> None:
    data = gzip.compress(b"\x01" * (256 << 20), 9)
    tracemalloc.start()
    _, _, broken = collect(read_chunks(inflated(data), FrameRules(chunk_bytes=1 << 16)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "checksum" in str(broken)
    assert peak < 8 << 20


@pytest.mark.parametrize("compression", CODECS)
def test_written_files_come_back(tmp_path: Path, compression: Any) -> None:
    path = str(tmp_path / "x.tfrecord")
    with writing(path, CODECS[compression]) as out:
        out.write(FILE)
    assert collect(read_file(path, CODECS[compression], SMALL)) == (PAYLOADS, [], None)


def test_parts_of_a_file_give_each_record_once_wherever_they_are_cut(tmp_path: Path) -> None:
    source = random.Random(1)
    payloads = [source.randbytes(source.choice([0, 1, 5, 90, 3000])) for _ in range(60)]
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"".join(map(frame_one, payloads)))
    size = path.stat().st_size
    for _ in range(50):
        edges = sorted({0, *(source.randrange(1, size) for _ in range(4))})
        got = []
        for start, stop in zip(edges, [*edges[1:], None], strict=True):
            good, corrupt, broken = collect(read_file(str(path), CODECS["none"], SMALL, start, stop))
            assert (corrupt, broken) == ([], None)
            got += good
        assert got == payloads


def test_a_record_of_records_does_not_mislead_the_parts(tmp_path: Path) -> None:
    inner = b"".join(frame_one(bytes([number])) for number in range(50))
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frame_one(b"first") + frame_one(inner) + frame_one(b"last"))
    middle = 21 + 12 + 400
    assert first_record(io.BytesIO(path.read_bytes()), middle, SMALL) < 21 + 16 + len(inner)
    with pytest.raises(DataError, match="cannot be read in parts") as caught:
        list(read_file(str(path), CODECS["none"], SMALL, 0, middle))
    assert "splitBytes" in caught.value.fix


def test_a_corrupt_record_at_a_seam_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    data = bytearray(FILE)
    data[16 + 17 + 12] ^= 1
    path.write_bytes(data)
    first = collect(read_file(str(path), CODECS["none"], SMALL, 0, 33))
    second = collect(read_file(str(path), CODECS["none"], SMALL, 33, None))
    assert (first[0] + second[0], first[1], second[1]) == ([*PAYLOADS[:2], *PAYLOADS[3:]], [2], [])
