"""kafka-python."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.compat.common import (
    DEADLINE_S,
    Deadline,
    Received,
    Record,
    key_or_value,
    unavailable,
)
from tests.compat.contract import ReaderContract, WriterContract

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka import codec as codecs


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = kafka.KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            admin.create_topics({topic: {"num_partitions": partitions}})
        finally:
            admin.close()

    def write(self, topic: str, partition: int, codec: str, records: Sequence[Record]) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=500,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    partition=partition,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp,
                )
                for record in map(self.as_written, records)
            ]
            producer.flush(DEADLINE_S)
            return [future.get(timeout=DEADLINE_S).offset for future in sent]
        finally:
            producer.close()

    def as_written(self, record: Record) -> Record:
        headers = tuple((name, value or b"") for name, value in record.headers)  # It refuses null ones.
        return key_or_value(replace(record, headers=headers))

    def read(self, topic: str, starts: Mapping[int, int], count: int) -> list[Received]:
        consumer = self._consumer()
        try:
            consumer.assign([kafka.TopicPartition(topic, partition) for partition in starts])
            for partition, offset in starts.items():
                consumer.seek(kafka.TopicPartition(topic, partition), offset)
            received: list[Received] = []
            deadline = Deadline(f"read {count} records of {topic}")
            while len(received) < count:
                deadline.check()
                for messages in consumer.poll(timeout_ms=200).values():
                    for m in messages:
                        record = Record(m.timestamp, m.key, m.value, tuple(m.headers))
                        received.append(Received(m.partition, m.offset, record))
            return received
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        asked = kafka.TopicPartition(topic, partition)
        consumer = self._consumer()
        try:
            found = consumer.offsets_for_times({asked: timestamp})[asked]
            return None if found is None else found.offset
        finally:
            consumer.close()

    def _consumer(self) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)


@pytest.fixture(scope="module")
def client(bootstrap: str) -> KafkaPython:
    if not (codecs.has_snappy() and codecs.has_lz4() and codecs.has_zstd()):
        unavailable("a codec of kafka-python", "pip install python-snappy lz4 zstandard")
    return KafkaPython(bootstrap)


class TestWriter(WriterContract):
    pass


class TestReader(ReaderContract):
    pass
