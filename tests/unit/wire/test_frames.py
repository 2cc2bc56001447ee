"""Frames out of a byte stream, however it is cut."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CorruptFrame
from headwater.wire.frames import SMALLEST_FRAME, FrameReader
from tests.support.promise import promise

PROMISES = ("K1",)

frames = st.lists(st.binary(min_size=SMALLEST_FRAME, max_size=300), max_size=12)


def framed(wanted: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in wanted)


def receive(reader: FrameReader, stream: bytes, pieces: list[int]) -> list[bytes]:
    """Feed a stream in pieces, each as large as the reader has room for at most."""
    found: list[bytes] = []
    at, turn = 0, 0
    while at < len(stream):
        buffer = reader.buffer()
        assert len(buffer) > 0
        size = min(len(buffer), len(stream) - at, pieces[turn % len(pieces)] if pieces else len(stream))
        buffer[:size] = stream[at : at + size]
        at += size
        turn += 1
        for frame in reader.received(size):
            assert frame.readonly
            found.append(bytes(frame))
    return found


@promise("K1")
@given(frames, st.lists(st.integers(1, 400), max_size=20), st.integers(20, 500))
def test_any_split_gives_the_same_frames(wanted: list[bytes], pieces: list[int], scratch: int) -> None:
    """With a receive buffer of any size, larger or smaller than the frames."""
    reader = FrameReader(1 << 20, memoryview(bytearray(scratch)))
    assert receive(reader, framed(wanted), pieces) == wanted
    assert "0 bytes missing" in repr(reader)


@promise("K1")
@given(frames, frames, st.lists(st.tuples(st.integers(0, 1), st.integers(1, 200)), max_size=60))
def test_connections_share_a_buffer(one: list[bytes], other: list[bytes], turns: list[tuple[int, int]]) -> None:
    """What is left of one connection's bytes survives another's turn."""
    scratch = memoryview(bytearray(64))
    readers = [FrameReader(1 << 20, scratch) for _ in range(2)]
    streams = [framed(one), framed(other)]
    found: list[list[bytes]] = [[], []]
    for who, size in [*turns, *[(0, 50), (1, 50)] * 200]:
        part, streams[who] = streams[who][:size], streams[who][size:]
        found[who] += receive(readers[who], part, [])
    assert found == [one, other]


@promise("K1")
@pytest.mark.parametrize("size", [-1, -(1 << 31), 0, SMALLEST_FRAME - 1, 1001, (1 << 31) - 1])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("pieces", [[], [1], [3]])
def test_bad_sizes_are_refused(size: int, before: int, pieces: list[int]) -> None:
    """Negative, too small for a header, or beyond the limit: before anything of that size is made."""
    reader = FrameReader(1000, memoryview(bytearray(4096)))
    with pytest.raises(CorruptFrame):
        receive(reader, framed([b"x" * 20] * before) + struct.pack(">i", size) + bytes(50), pieces)


@promise("K1")
def test_the_limits_themselves_pass() -> None:
    for size in (SMALLEST_FRAME, 1000):
        reader = FrameReader(1000, memoryview(bytearray(100)))
        assert receive(reader, framed([b"x" * size]), [7]) == [b"x" * size]


@promise("K1")
def test_whole_frames_are_not_copied() -> None:
    """A frame that lies whole in the shared buffer is a view of it."""
    scratch = bytearray(100)
    reader = FrameReader(1000, memoryview(scratch))
    stream = framed([b"12345678"])
    reader.buffer()[: len(stream)] = stream
    [frame] = reader.received(len(stream))
    scratch[4] = ord("X")
    assert bytes(frame) == b"X2345678"


@promise("K1")
def test_repr() -> None:
    reader = FrameReader(1000, memoryview(bytearray(100)))
    receive(reader, struct.pack(">i", 50) + bytes(20), [])
    assert repr(reader) == "<FrameReader, 30 bytes missing>"
