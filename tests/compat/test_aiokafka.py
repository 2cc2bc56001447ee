"""aiokafka."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code

from tests.compat.common import DEADLINE_S, Deadline, Received, Record, key_or_value
from tests.compat.contract import ReaderContract, WriterContract

T = TypeVar("T")


def run(call: Coroutine[None, None, T]) -> T:
    return asyncio.run(asyncio.wait_for(call, 2 * DEADLINE_S))


class Aiokafka:
    """Each call runs a client of its own in an event loop of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        run(self._create_topic(topic, partitions))

    def write(self, topic: str, partition: int, codec: str, records: Sequence[Record]) -> list[int]:
        return run(self._write(topic, partition, codec, records))

    def as_written(self, record: Record) -> Record:
        return key_or_value(record)

    def read(self, topic: str, starts: Mapping[int, int], count: int) -> list[Received]:
        return run(self._read({TopicPartition(topic, p): at for p, at in starts.items()}, count))

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        return run(self._offset_for_time(TopicPartition(topic, partition), timestamp))

    async def _create_topic(self, topic: str, partitions: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            answer = await admin.create_topics([NewTopic(topic, partitions, replication_factor=1)])
        finally:
            await admin.close()
        for _, code, message in answer.topic_errors:
            if code:
                raise for_code(code)(message)

    async def _write(self, topic: str, partition: int, codec: str, records: Sequence[Record]) -> list[int]:
        compression = None if codec == "none" else codec
        async with AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, compression_type=compression, linger_ms=50
        ) as producer:
            sent = [
                await producer.send(
                    topic,
                    partition=partition,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp,
                )
                for record in map(self.as_written, records)
            ]
            return [metadata.offset for metadata in await asyncio.gather(*sent)]

    async def _read(self, starts: Mapping[TopicPartition, int], count: int) -> list[Received]:
        async with self._consumer() as consumer:
            consumer.assign(list(starts))
            for partition, offset in starts.items():
                consumer.seek(partition, offset)
            received: list[Received] = []
            deadline = Deadline(f"read {count} records of {starts}")
            while len(received) < count:
                deadline.check()
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    for m in messages:
                        record = Record(m.timestamp, m.key, m.value, tuple(m.headers))
                        received.append(Received(m.partition, m.offset, record))
            return received

    async def _offset_for_time(self, partition: TopicPartition, timestamp: int) -> int | None:
        async with self._consumer() as consumer:
            found = (await consumer.offsets_for_times({partition: timestamp}))[partition]
            return None if found is None else found.offset

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Aiokafka:
    return Aiokafka(bootstrap)


class TestWriter(WriterContract):
    pass


class TestReader(ReaderContract):
    pass
