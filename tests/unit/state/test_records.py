"""Ledger records: their frame, their CRC, and what other builds wrote."""

import struct

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import Halted
from headwater.state.commands.base import Fence, Tick
from headwater.state.commands.streams import AppendUnits, AppendWal, Chunk, Mode, Unit, UnitChunk
from headwater.state.commands.transactions import EndTransaction
from headwater.state.records import FORMAT, Record, decode, encode, encode_command, encode_record
from tests.support.promise import promise

PROMISES = ("M1", "M5")

RECORD = Record(3, 7, 1_700_000_000_000, 5_000, [Tick(), Fence(2)])


@promise("M5")
def test_golden() -> None:
    """Records that this build writes have these very bytes, and every later build reads them."""
    data = bytes.fromhex("03635a87cd950307cf0000018bcfe56800cd13889291a47469636b92a566656e636502")
    assert encode(RECORD) == data
    assert decode(data) == RECORD
    assert encode_record(3, 7, RECORD.clock_ms, RECORD.steady_ms, [encode_command(c) for c in RECORD.commands]) == data


def test_the_bytes_of_a_transaction() -> None:
    """A transaction is one command of some 60 bytes, and a few bytes more for each of its chunks."""
    largest = EndTransaction("an-id-of-the-usual-length", (1 << 62) - 1, 32_766, True, True, (1 << 62) - 1)
    assert len(memoryview(encode_command(largest))) <= 64
    batches, producers = [(16_000, 15, 1_700_000_000_000)], [(1_000, 7, 15)]
    plain = [Chunk(stream, 1_000, batches, producers) for stream in range(12)]
    units = [UnitChunk(stream, 1_000, batches, producers, bytes([Mode.JOINS])) for stream in range(12)]
    without = encode_command(AppendWal(1, 200_000, 1_700_000_000_000, "zone", plain))
    within = encode_command(AppendUnits(1, 200_000, 1_700_000_000_000, "zone", [Unit([], units)]))
    assert len(memoryview(within)) - len(memoryview(without)) <= 10 + 3 * len(units)


@promise("M1")
@given(st.data())
def test_a_damaged_record_halts(data: st.DataObject) -> None:
    """Any changed bit and any cut is found, and no such record is folded."""
    good = encode(RECORD)
    if data.draw(st.booleans()):
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    else:
        at, bit = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(0, 7))
        bad = good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :]
    with pytest.raises(Halted):
        decode(bad)


@promise("M5")
@pytest.mark.parametrize("number", [0, FORMAT - 1, FORMAT + 1, 0x94])
def test_a_record_of_another_format(number: int) -> None:
    """The error says which format it has, which one this build reads, that nothing was changed, and what to do."""
    text = rf"has format {number}, .* reads format {FORMAT} only\. Nothing was changed\. Use the build that wrote it\."
    with pytest.raises(Halted, match=text + ".*start with an empty data directory"):
        decode(bytes([number]) + encode(RECORD)[1:])


@promise("M1", "M5")
def test_what_is_not_understood_halts() -> None:
    """An unknown command or field in a sound frame is of a newer build: never guess."""

    def framed(body: bytes) -> bytes:
        return struct.pack(">BI", FORMAT, crc32c(body)) + body

    assert decode(framed(msgspec.msgpack.encode([1, 1, 5, 6, [["fence", 3]]]))) == Record(1, 1, 5, 6, [Fence(3)])
    for bad in (
        [1, 1, 5, [["unheard of", 3]]],
        [1, 1, 5, [["fence", 3, 4]]],
        [1, 1, 5, [["fence"]]],
        [1, 1, 5, [["fence", "3"]]],
        [1, 1, 5, [["wal", 1, 100, 5, "z", [[1, 50, [[10, 1, 5]], [], "extra"]]]]],
        [1, 1, 5, [], "extra"],
        [1, 1, 5],
    ):
        with pytest.raises(Halted, match="newer build"):
            decode(framed(msgspec.msgpack.encode(bad)))
    with pytest.raises(Halted, match="newer build"):
        decode(framed(b"\xc1 no msgpack"))
