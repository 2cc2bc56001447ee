"""The control batch of a transaction's end has Kafka's bytes, whoever makes it."""

import struct

import pytest
from crc32c import crc32c

from headwater.client.records import decode_batches
from headwater.log.batch import CRC_FROM, base_offset_of, offsets_of, sound_offsets, split_batches
from headwater.log.marker import marker_batch
from headwater.state.streams.index import MARKER_BYTES, IndexEntry, OffsetIndex

PROMISES = ("K12",)

TIME = 1_700_000_000_123


def entry(*, commit: bool, producer: int = 1 << 40 | 5, epoch: int = 32_767, offset: int = 1 << 35) -> IndexEntry:
    index = OffsetIndex()
    index.mark(offset, MARKER_BYTES, TIME, producer, epoch, commit=commit)
    return index[0]


@pytest.mark.parametrize("commit", [False, True])
def test_the_fields(commit: bool) -> None:
    """Every field of the header, and the key and the value of the one record."""
    data = marker_batch(entry(commit=commit))
    assert len(data) == MARKER_BYTES == 78
    base, length, leader, magic, crc, attributes, last, first_ms, last_ms, producer, epoch, sequence, count = (
        struct.unpack_from(">qiibIhiqqqhii", data)
    )
    assert (base, length, leader, magic) == (1 << 35, MARKER_BYTES - 12, 0, 2)
    assert crc == crc32c(data[CRC_FROM:])
    assert (attributes, last, first_ms, last_ms) == (0x30, 0, TIME, TIME)
    assert (producer, epoch, sequence, count) == (1 << 40 | 5, 32_767, -1, 1)
    record = struct.unpack(">bbbbbhhbhib", data[61:])
    zigzag_16, zigzag_4, zigzag_6 = 32, 8, 12
    assert record == (zigzag_16, 0, 0, 0, zigzag_4, 0, int(commit), zigzag_6, 0, 0, 0)


def test_readers_take_it() -> None:
    """It is a sound batch of one offset, and has no records for those who read records."""
    data = marker_batch(entry(commit=True))
    assert (sound_offsets(data), offsets_of(data), base_offset_of(data)) == (1, 1, 1 << 35)
    assert [bytes(one) for one in split_batches(data + data)] == [data, data]
    [batch] = decode_batches(data)
    assert (batch.base_offset, batch.next_offset, batch.control, batch.records) == (1 << 35, (1 << 35) + 1, True, ())


def test_the_same_entry_gives_the_same_bytes() -> None:
    made = {marker_batch(entry(commit=commit, producer=p)) for commit in (False, True) for p in (7, 8) for _ in "ab"}
    assert len(made) == 4
