"""Bloom filters of keys: what pyarrow has written is found by our probes, and most of the rest is not."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.log.segment.filters import block_at, blocks_of, header_of, key_hash, may_have
from headwater.log.segment.read import SegmentReader, footer_bytes
from headwater.log.segment.rows import plain_rows, plain_schema
from headwater.log.segment.write import SegmentWriter


@pytest.mark.parametrize(
    ("key", "wanted"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_the_hash_is_xxh64(key: bytes, wanted: int) -> None:
    assert key_hash(key) == wanted


def _segment(*groups: list[bytes | None]) -> bytes:
    sink = io.BytesIO()
    writer, at = SegmentWriter(sink), 0
    for keys in groups:
        rows = [{"key": key, "value": b"v", "timestamp_ms": 1, "headers": []} for key in keys]
        writer.add(0, plain_rows(0, at, pa.RecordBatch.from_pylist(rows, schema=plain_schema()), append_time=False))
        writer.end_part()
        at += len(keys)
    writer.close()
    return sink.getvalue()


def test_every_key_is_found_and_few_others() -> None:
    keys = [b"key %d " % i * (1 + i % 9) for i in range(2_000)]
    data = _segment([*keys, None], [b"one"], [None])
    footer = SegmentReader(data[-footer_bytes(data) :])
    places = footer.key_filters()
    assert len(places) == 3

    def has(group: int, key: bytes) -> bool:
        place = places[group]
        assert place is not None
        blocks = blocks_of(*place)
        assert blocks is not None and data[place[0] : blocks[0]] == header_of(blocks[1])
        at = blocks[0] + block_at(blocks[1], key_hash(key))
        return may_have(data[at : at + 32], key_hash(key))

    assert all(has(0, key) for key in keys)
    assert sum(has(0, b"other %d" % i) for i in range(2_000)) < 100
    assert has(1, b"one") and not has(1, b"two") and not has(2, b"one")
    sizes = [place[1] for place in places if place is not None]
    assert sizes[0] < 5_000 and max(sizes[1:]) < 64  # a filter is as large as its keys need


def test_files_without_filters_and_other_filters() -> None:
    table = pa.Table.from_batches([plain_rows(0, 0, pa.RecordBatch.from_pylist([], plain_schema()), append_time=False)])
    row = {name: None for name in table.schema.names} | {"partition": 0, "offset": 0, "timestamp_ms": 0}
    row |= {"attributes": 0, "producer_id": -1, "producer_epoch": -1, "sequence": -1, "headers": []}
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([row], schema=table.schema), sink)
    data = sink.getvalue()
    assert SegmentReader(data[-footer_bytes(data) :]).key_filters() == [None]
    assert blocks_of(100, 47) == (115, 32) and blocks_of(100, 20) is None
    assert blocks_of(100, 64) is None and blocks_of(100, 1_000) is None
