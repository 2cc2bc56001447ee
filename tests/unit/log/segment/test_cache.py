"""Few requests bring a segment's rows, whatever the cache still holds."""

import asyncio
import io
import itertools
import random
import struct

import pytest

from headwater.client.records import decode_batches
from headwater.log.segment.cache import Segment, SegmentCache
from headwater.log.segment.read import SPAN_BYTES, footer_checksum
from headwater.log.segment.write import SegmentWriter, decode_runs
from headwater.objects.memory import MemoryStore
from tests.support.batches import Rec, batch
from tests.support.promise import promise

PROMISES = ("T3", "M7")

PATH = "tables/t/_data/1.parquet"
RECORDS = 20
PLENTY = 1 << 30


class Counted(MemoryStore):
    """Counts requests."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: list[tuple[int, int]] = []

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(path, start, length)
        self.gets.append((start, len(data)))
        return data


def values(partition: int, size: int) -> list[bytes]:
    chance = random.Random(partition)
    return [chance.randbytes(size) for _ in range(RECORDS)]


def stored(partitions: int, size: int) -> tuple[Counted, Segment]:
    """A segment with so many partitions, whose records do not compress."""
    out = io.BytesIO()
    writer = SegmentWriter(out)
    for partition in range(partitions):
        one = batch([Rec(value) for value in values(partition, size)])
        for piece in decode_runs(partition, [(struct.pack(">I", len(one)) + one, 0, -1)], 0, 1 << 26):
            writer.add(partition, piece)
        writer.end_part()
    writer.close()
    store, data = Counted(), out.getvalue()
    store.objects[PATH] = data
    return store, Segment(PATH, len(data), footer_checksum(data))


async def read(cache: SegmentCache, segment: Segment, partition: int) -> list[bytes | None]:
    encoded = await cache.encode(segment, partition, 0, RECORDS, 1 << 26, True)
    return [record.value for found in decode_batches(bytes(encoded.records)) for record in found.records]


async def read_all(cache: SegmentCache, segment: Segment, partitions: int, size: int) -> None:
    for partition in range(partitions):
        assert await read(cache, segment, partition) == values(partition, size)


@promise("M7")
def test_a_small_segment_takes_one_request() -> None:
    """Its footer and all its row groups."""
    store, segment = stored(8, 1_000)
    assert segment.size < SPAN_BYTES
    asyncio.run(read_all(SegmentCache(store, PLENTY), segment, 8, 1_000))
    assert store.gets == [(0, segment.size)]


@promise("M7")
def test_small_row_groups_come_with_their_neighbours() -> None:
    """One request for about two megabytes, each byte once, and one for the footer."""
    store, segment = stored(40, 10_000)
    asyncio.run(read_all(SegmentCache(store, PLENTY), segment, 40, 10_000))
    (_, _), *spans = store.gets
    assert len(spans) == 4
    assert all(length <= SPAN_BYTES for _, length in spans)
    assert all(a + length <= b for (a, length), (b, _) in itertools.pairwise(spans))


@promise("M7")
def test_large_row_groups_come_alone() -> None:
    """A row group that is worth a request is one, and its bytes are not kept beside its rows."""
    store, segment = stored(3, 120_000)
    cache = SegmentCache(store, PLENTY)
    asyncio.run(read_all(cache, segment, 3, 120_000))
    assert len(store.gets) == 4
    assert cache.bytes < 3 * RECORDS * 120_000 * 1.1


@promise("T3")
@pytest.mark.parametrize("limit", [0, 100_000, 3_000_000])
def test_a_cache_that_forgets(limit: int) -> None:
    """Fewer bytes held means more requests, never other rows."""
    store, segment = stored(20, 10_000)
    cache = SegmentCache(store, limit)

    async def scenario() -> None:
        for _ in range(2):
            await read_all(cache, segment, 20, 10_000)
            assert cache.bytes <= limit

    asyncio.run(scenario())
    assert len(store.gets) > 4


@promise("M7")
def test_readers_of_neighbours_share_a_request() -> None:
    """Partitions that are read at once wait for the same bytes."""
    store, segment = stored(8, 10_000)

    async def scenario() -> None:
        cache = SegmentCache(store, PLENTY)
        found = await asyncio.gather(*(read(cache, segment, partition) for partition in range(8)))
        assert found == [values(partition, 10_000) for partition in range(8)]

    asyncio.run(scenario())
    assert store.gets == [(0, segment.size)]
