"""Rows as Kafka batches: borders, limits, gaps, times."""

from typing import Any

import pyarrow as pa
import pytest

from headwater.client.records import Batch, decode_batches
from headwater.errors import Damaged
from headwater.log.batch import max_timestamp_of, split_batches
from headwater.log.segment.encode import RowGroup, compile_encoder
from headwater.log.segment.schema import segment_schema
from tests.support.promise import promise

PROMISES = ("T3", "K4", "K5")

WHOLE = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    compile_encoder()


def group(*rows: dict[str, Any]) -> RowGroup:
    defaults = {
        "partition": 0, "timestamp_ms": 1_000, "timestamp": None, "key": None, "value": b"v", "headers": [],
        "headers_raw": None, "attributes": 0, "producer_id": -1, "producer_epoch": -1, "sequence": -1,
    }  # fmt: skip
    return RowGroup(pa.RecordBatch.from_pylist([defaults | row for row in rows], schema=segment_schema()))


def batches(rows: RowGroup, offset: int, end: int, **limits: int) -> list[Batch]:
    encoded = rows.encode(offset, end, limits.pop("max_bytes", WHOLE), True, **limits)
    found = list(decode_batches(encoded.records))
    assert found[-1].next_offset == encoded.next_offset
    return found


@promise("T3")
def test_gaps_are_covered() -> None:
    """Every batch reaches to the next row, the last one to the end that is asked for."""
    rows = group(*({"offset": offset} for offset in (10, 11, 40, 50)))
    (one,) = batches(rows, 0, 60)
    assert (one.base_offset, one.next_offset) == (10, 60)
    assert [record.offset for record in one.records] == [10, 11, 40, 50]
    many = batches(rows, 11, 60, batch_bytes=1)
    assert [(one.base_offset, one.next_offset) for one in many] == [(11, 40), (40, 50), (50, 60)]
    (cut,) = batches(rows, 12, 45)
    assert (cut.base_offset, cut.next_offset) == (40, 45)


@promise("T3")
def test_nothing_left() -> None:
    rows = group({"offset": 10})
    for offset, end, following in ((11, 20, 20), (5, 8, 8), (30, 20, 30)):
        encoded = rows.encode(offset, end, WHOLE, True)
        assert (bytes(encoded.records), encoded.next_offset) == (b"", following)
    none = RowGroup(segment_schema().empty_table())
    assert none.encode(0, 5, WHOLE, True).next_offset == 5
    assert none.first_at_time(0) is None
    assert none.largest_time() is None


@promise("K4")
def test_limits() -> None:
    """Never more than `max_bytes`, but the first record if it is asked for."""
    rows = group(*({"offset": i, "value": bytes(1_000)} for i in range(10)))
    for max_bytes in (1, 1_100, 2_500, 5_000, 100_000):
        for batch_bytes in (1, 2_500, WHOLE):
            encoded = rows.encode(0, 10, max_bytes, True, batch_bytes)
            found = list(decode_batches(encoded.records))
            assert len(encoded.records) <= max(max_bytes, 1_100)
            assert encoded.next_offset == found[-1].next_offset == 1 + found[-1].records[-1].offset
    nothing = rows.encode(3, 10, 500, False)
    assert (bytes(nothing.records), nothing.next_offset) == (b"", 3)
    assert rows.encode(3, 10, 1_100, False).next_offset == 4


@promise("T3")
def test_log_append_time() -> None:
    """A batch has one append time, and none together with create time."""
    times = [(5, 8), (5, 8), (6, 8), (6, 0), (9, 0), (9, 8)]
    rows = group(*({"offset": i, "timestamp_ms": t, "attributes": a} for i, (t, a) in enumerate(times)))
    encoded = rows.encode(0, 6, WHOLE, True).records
    found = list(decode_batches(encoded))
    assert [(one.base_offset, one.next_offset) for one in found] == [(0, 2), (2, 3), (3, 5), (5, 6)]
    assert [record.timestamp for one in found for record in one.records] == [t for t, _ in times]
    assert [max_timestamp_of(one) for one in split_batches(encoded)] == [5, 6, 9, 9]
    assert [bytes(one)[21:23] for one in split_batches(encoded)] == [b"\0\x08", b"\0\x08", b"\0\0", b"\0\x08"]


@promise("T3")
def test_header_fields() -> None:
    """No producer, no codec, no transaction; leader epoch 0; the largest timestamp."""
    rows = group({"offset": 7, "timestamp_ms": 30, "attributes": 0x10, "producer_id": 5}, {"offset": 8})
    (one,) = split_batches(rows.encode(0, 9, WHOLE, True).records)
    data = bytes(one)
    assert data[12:17] == b"\0\0\0\0\2"
    assert data[21:23] == b"\0\0"
    assert data[43:57] == b"\xff" * 14
    assert max_timestamp_of(data) == 1_000
    assert int.from_bytes(data[27:35], "big") == 30


@promise("T3")
def test_extreme_deltas() -> None:
    """Timestamps and offsets too far apart for one batch."""
    stamps = [-(1 << 63), (1 << 63) - 1, -1, 0, -(1 << 63)]
    rows = group(*({"offset": i, "timestamp_ms": t} for i, t in enumerate(stamps)))
    assert [record.timestamp for one in batches(rows, 0, 5) for record in one.records] == stamps
    rows = group({"offset": 0}, {"offset": 1 << 31}, {"offset": 1 << 33})
    found = batches(rows, 0, 1 << 40)
    assert [record.offset for one in found for record in one.records] == [0, 1 << 31, 1 << 33]
    assert [(one.base_offset, one.next_offset) for one in found] == [
        (0, 1 << 31),
        (1 << 31, (1 << 31) + (1 << 31)),
        (1 << 33, (1 << 33) + (1 << 31)),
    ]


@promise("K5")
def test_times() -> None:
    """Exact with disordered clocks."""
    rows = group(*({"offset": 10 * i, "timestamp_ms": t} for i, t in enumerate([5, 3, 9, 4, 9])))
    assert rows.first_at_time(4) == (0, 5)
    assert rows.first_at_time(6) == (20, 9)
    assert rows.first_at_time(4, from_offset=21) == (30, 4)
    assert rows.first_at_time(10) is None
    assert rows.largest_time() == (20, 9)
    assert rows.largest_time(25) == (40, 9)
    assert rows.largest_time(41) is None


@promise("T3")
def test_slices_and_chunks() -> None:
    """Columns need not be whole."""
    rows = [{"offset": i, "headers": [{"key": str(i), "value": None}] * (i % 3), "key": None} for i in range(9)]
    defaults = {"partition": 0, "timestamp_ms": 0, "attributes": 0, "producer_id": -1, "producer_epoch": -1}
    whole = pa.RecordBatch.from_pylist([defaults | {"sequence": -1} | row for row in rows], schema=segment_schema())
    table = pa.Table.from_batches([whole.slice(1, 3), whole.slice(4, 5)])
    (found,) = batches(RowGroup(table), 0, 9)
    assert [(r.offset, r.headers) for r in found.records] == [(i, ((str(i), None),) * (i % 3)) for i in range(1, 9)]


@promise("T3")
def test_other_types_are_refused() -> None:
    """No bytes are read as what they are not."""
    rows = segment_schema().empty_table()
    with pytest.raises(Damaged):
        RowGroup(rows.set_column(4, "key", pa.array([], pa.large_binary())))
