"""What every client must see. A test module inherits these and gives the fixture `client`."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.compat import wire
from tests.compat.common import (
    CODECS,
    PARTITION,
    PARTITIONS,
    SAMPLE,
    Reader,
    Record,
    Writer,
    Written,
    check,
    first_not_older,
    new_topic,
)

WrittenOnce = Callable[[str], Written]
"""Gives the topic that holds the sample in that codec; writes it at the first call."""

each_codec = pytest.mark.parametrize("codec", CODECS)


def write_sample(writer: Writer, codec: str) -> Written:
    """Has the writer create a topic and produce the sample into it."""
    topic = new_topic(codec)
    writer.create_topic(topic, PARTITIONS)
    assert writer.write(topic, PARTITION, codec, SAMPLE) == list(range(len(SAMPLE)))
    return Written(topic, [writer.as_written(record) for record in SAMPLE])


@pytest.mark.timeout(90)
class WriterContract:
    """What the client writes is on the server as it was meant."""

    @each_codec
    def test_another_client_reads_it(self, written: WrittenOnce, reference: Reader, codec: str) -> None:
        data = written(codec)
        check(reference.read(data.topic, {PARTITION: 0}, len(data.records)), data.records)

    @each_codec
    def test_it_is_one_batch_in_the_codec(self, written: WrittenOnce, bootstrap: str, codec: str) -> None:
        data = written(codec)
        batches = wire.fetch_batches(bootstrap, data.topic, PARTITION)
        assert batches == [wire.Batch(0, len(data.records) - 1, codec)]

    def test_later_batches_follow(self, writer: Writer, reference: Reader) -> None:
        topic = new_topic("batches")
        writer.create_topic(topic, PARTITIONS)
        records = SAMPLE[:20]
        for first, codec in zip(range(0, 20, 4), CODECS, strict=True):
            offsets = writer.write(topic, PARTITION, codec, records[first : first + 4])
            assert offsets == list(range(first, first + 4))
        expected = [writer.as_written(record) for record in records]
        check(reference.read(topic, {PARTITION: 0}, 20), expected)


@pytest.mark.timeout(90)
class ReaderContract:
    """What is on the server is what the client reads, wherever it starts."""

    @each_codec
    def test_from_the_beginning(self, written: WrittenOnce, reader: Reader, codec: str) -> None:
        data = written(codec)
        check(reader.read(data.topic, {PARTITION: 0}, len(data.records)), data.records)

    @each_codec
    def test_from_inside_a_batch(self, written: WrittenOnce, reader: Reader, codec: str) -> None:
        data = written(codec)
        for first in (23, 49):
            rest = data.records[first:]
            check(reader.read(data.topic, {PARTITION: first}, len(rest)), rest, first)

    @each_codec
    def test_from_a_timestamp(self, written: WrittenOnce, reader: Reader, codec: str) -> None:
        data = written(codec)
        start = data.records[0].timestamp
        # Before all, on a record, between two, just before the one that goes back, on the repeated one.
        for timestamp in (start - 1000, start + 100, start + 105, start + 175, start + 290):
            first = first_not_older(data.records, timestamp)
            assert reader.offset_for_time(data.topic, PARTITION, timestamp) == first
        rest = data.records[first:]
        check(reader.read(data.topic, {PARTITION: first}, len(rest)), rest, first)

    def test_no_record_after_a_timestamp(self, written: WrittenOnce, reader: Reader) -> None:
        data = written("none")
        later = data.records[-1].timestamp + 1
        # Most APIs say "none"; those that must give an offset give the end.
        assert reader.offset_for_time(data.topic, PARTITION, later) in (None, len(data.records))

    @each_codec
    def test_what_librdkafka_wrote(self, written_by_reference: WrittenOnce, reader: Reader, codec: str) -> None:
        data = written_by_reference(codec)
        check(reader.read(data.topic, {PARTITION: 0}, len(data.records)), data.records)

    def test_all_partitions_at_once(self, writer: Writer, reader: Reader) -> None:
        topic = new_topic("partitions")
        writer.create_topic(topic, PARTITIONS)
        # Partition 1 stays empty: nothing to fetch from it must hold nobody up.
        parts = {0: SAMPLE[:10], 2: SAMPLE[10:20]}
        for partition, records in parts.items():
            writer.write(topic, partition, "none", records)
        received = reader.read(topic, dict.fromkeys(range(PARTITIONS), 0), 20)
        assert len(received) == 20
        for partition, records in parts.items():
            expected = [writer.as_written(record) for record in records]
            check([r for r in received if r.partition == partition], expected, partition=partition)

    def test_records_that_come_while_it_waits(self, reader: Reader, reference: Writer) -> None:
        topic = new_topic("tail")
        reference.create_topic(topic, PARTITIONS)
        records = SAMPLE[:30]
        reference.write(topic, PARTITION, "none", records[:10])
        with ThreadPoolExecutor(max_workers=1) as pool:
            reading = pool.submit(reader.read, topic, dict.fromkeys(range(PARTITIONS), 0), len(records))
            for first in (10, 20):
                reference.write(topic, PARTITION, "zstd", records[first : first + 10])
            check(reading.result(), records)

    def test_records_larger_than_a_fetch(self, writer: Writer, reader: Reader) -> None:
        topic = new_topic("large")
        writer.create_topic(topic, PARTITIONS)
        at = SAMPLE[0].timestamp
        # Any two of them are more than the megabyte that clients ask for of one partition.
        records = [Record(at + i, b"%d" % i, bytes([i, 255 - i]) * 350_000) for i in range(4)]
        for record in records:
            writer.write(topic, PARTITION, "none", [record])
        check(reader.read(topic, {PARTITION: 0}, len(records)), records)
