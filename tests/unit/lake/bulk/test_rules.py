"""Rows that are appended in bulk must be such as a producer could have sent."""

import random

import pyarrow as pa
import pytest

from harness.virtual import run
from headwater.client.partitioner import partition_of_key
from headwater.configs.topics import TopicConfig
from headwater.errors import BadInput, NotFound
from headwater.lake.bulk.append import Gathered, key_partitions
from headwater.lake.bulk.rules import batch_sizes, check_records, outdated
from headwater.log.segment.rows import plain_rows
from headwater.log.segment.schema import segment_schema
from tests.support.batches import Rec, batch
from tests.support.bulk import Loader, rows
from tests.support.promise import promise
from tests.support.virtual_nodes import NodeWorld, topic

PROMISES = ("L8",)

NOW = 1_700_000_000_000


def config(**configs: str) -> TopicConfig:
    return TopicConfig.of({name.replace("_", "."): value for name, value in configs.items()}, {})


@promise("L8")
def test_sizes_are_those_of_batches() -> None:
    """To the byte, at all borders of variable numbers."""
    lengths = [None, 0, 1, 62, 63, 64, 8_190, 8_191, 8_192, 1_048_575, 1_048_576]
    for key in lengths[:6]:
        for value in lengths:
            for headers in ((), (("h", b"x" * 64), ("h", None)), (("name" * 20, b""),) * 70):
                made = (b"k" * key if key is not None else None, b"v" * value if value is not None else None, NOW)
                [size] = batch_sizes(rows([made], headers).batch)
                rec = Rec(made[1], made[0], NOW, tuple((name.encode(), content) for name, content in headers))
                assert size == len(batch([rec]))


@promise("L8")
def test_a_record_that_is_too_large() -> None:
    """The message names the file and the row; one byte less is taken."""
    made = [(b"k", b"x" * 100, NOW), (b"k", b"x" * 101, NOW)]
    size = len(batch([Rec(b"x" * 100, b"k", NOW)]))
    limits = config(max_message_bytes=str(size))
    with pytest.raises(BadInput, match=f"rows.parquet, row 1: a record of {size + 1} bytes; the topic allows {size}"):
        check_records(rows(made), limits, NOW)
    assert check_records(rows(made[:1]), limits, NOW).batch.num_rows == 1


@promise("L8")
def test_a_compacted_topic_needs_keys() -> None:
    made = [(b"", b"x", NOW), (None, b"x", NOW)]
    with pytest.raises(BadInput, match="row 1: a compacted topic takes no records without a key"):
        check_records(rows(made), config(cleanup_policy="compact"), NOW)
    check_records(rows(made[:1]), config(cleanup_policy="compact"), NOW)
    check_records(rows(made), config(), NOW)


@promise("L8")
@pytest.mark.parametrize(
    ("timestamp", "fine"), [(NOW + 10, True), (NOW + 11, False), (NOW - 20, True), (NOW - 21, False)]
)
def test_times_must_be_near(timestamp: int, fine: bool) -> None:
    limits = config(message_timestamp_after_max_ms="10", message_timestamp_before_max_ms="20")
    made = rows([(None, b"x", NOW), (None, b"x", timestamp)])
    if fine:
        check_records(made, limits, NOW)
    else:
        with pytest.raises(BadInput, match=f"row 1: timestamp {timestamp} is too far"):
            check_records(made, limits, NOW)


@promise("L8")
def test_rows_without_a_time() -> None:
    """Get the present one; all do if the topic keeps the time of the append."""
    made = rows([(None, b"x", None), (None, b"x", 5)])
    assert check_records(made, config(), NOW).batch.column("timestamp_ms").to_pylist() == [NOW, 5]
    append = config(message_timestamp_type="LogAppendTime")
    assert check_records(made, append, NOW).batch.column("timestamp_ms").to_pylist() == [NOW, NOW]


@promise("L8")
@pytest.mark.parametrize(
    ("configs", "count"),
    [
        ({"retention_ms": "10"}, 2),
        ({"retention_ms": "-1"}, 0),
        ({"retention_ms": "10", "cleanup_policy": "compact"}, 0),
        ({"retention_ms": "10", "message_timestamp_type": "LogAppendTime"}, 0),
    ],
)
def test_rows_that_retention_removes_soon(configs: dict[str, str], count: int) -> None:
    """Those with a time of their own that is too old; a time below 0 is none."""
    made = rows([(b"k", b"x", t) for t in (NOW, NOW - 10, NOW - 11, 0, -1, None)])
    limits = config(**configs)
    assert outdated(check_records(made, limits, NOW), limits, NOW) == count


@promise("L8")
def test_rows_of_a_segment() -> None:
    """Dense offsets, no producer, and a null where no calendar has the time."""
    times = [NOW, -1, 253_402_300_799_999, 253_402_300_800_000, 1 << 62]
    made = plain_rows(3, 70, rows([(b"k", b"v", t) for t in times], [("h", b"1")]).batch, append_time=True)
    assert made.schema.equals(segment_schema())
    made.validate(full=True)
    found = made.to_pylist()
    assert [row["offset"] for row in found] == [70, 71, 72, 73, 74]
    assert [row["timestamp_ms"] for row in found] == times
    assert [row["timestamp"] is None for row in found] == [False, True, False, True, True]
    assert {name: found[0][name] for name in ("partition", "attributes", "producer_id", "sequence")} == {
        "partition": 3, "attributes": 8, "producer_id": -1, "sequence": -1
    }  # fmt: skip


@promise("L8")
def test_keys_go_where_kafka_puts_them() -> None:
    """By murmur2 of their bytes, of every length; rows without a key go where they are told."""
    chance = random.Random(1)
    keys = [None if i % 9 == 0 else chance.randbytes(i % 40) for i in range(2_000)]
    column = pa.array(keys, pa.binary())
    for part in (column, column.slice(77), column.slice(5, 3)):
        wanted = [6 if key is None else partition_of_key(key, 7) for key in part.to_pylist()]
        assert key_partitions(part, 7, 6).tolist() == wanted
    assert key_partitions(pa.array([b"", b""], pa.binary()), 7, 0).tolist() == [partition_of_key(b"", 7)] * 2


@promise("L8")
def test_rows_keep_their_order_in_each_partition() -> None:
    gathered = Gathered()
    for start in (0, 50):
        records = rows([(b"%d" % i, b"%d" % i, i) for i in range(start, start + 50)]).batch
        gathered.add(records, key_partitions(records.column("key"), 4, 0))
    assert gathered.rows == 100
    seen = []
    for partition, count in gathered.counts():
        found = [t for part in gathered.batches(partition) for t in part.column("timestamp_ms").to_pylist()]
        assert found == sorted(found)
        assert len(found) == count
        assert {partition_of_key(b"%d" % i, 4) for i in found} == {partition}
        seen += found
    assert sorted(seen) == list(range(100))


@promise("L8")
def test_checking_changes_nothing() -> None:
    """Bad rows anywhere in the input are found before anything is reserved."""

    async def story() -> None:
        world = NodeWorld()
        node = await world.node()
        made = await topic(node, max_message_bytes="100")
        loader = await Loader(world).start()
        position = loader.domain.state.position
        good, bad = rows([(b"k", b"v", 1)]), rows([(b"k", b"v" * 200, 1)])
        bulk = loader.bulk(made)
        with pytest.raises(BadInput, match="row 0: a record of"):
            await bulk.check([good, good, bad])
        assert await bulk.check([good, good]) == 2
        assert loader.domain.state.position == position
        with pytest.raises(NotFound, match="no partition 1; it has 1"):
            loader.bulk(made, partition=1)
        assert (await bulk.append([])).records == 0
        await loader.close()
        await node.stop()

    run(story())
