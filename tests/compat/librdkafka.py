"""confluent-kafka, which is librdkafka: a client under test, and the one the others are checked with."""

from collections.abc import Mapping, Sequence
from typing import cast

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.common import DEADLINE_S, Deadline, Headers, Received, Record


class Librdkafka:
    def __init__(self, bootstrap: str) -> None:
        self._servers: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = AdminClient(self._servers)  # Held by a name: its end cancels what it does.
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(timeout=DEADLINE_S)

    def write(self, topic: str, partition: int, codec: str, records: Sequence[Record]) -> list[int]:
        producer = confluent_kafka.Producer({**self._servers, "compression.type": codec, "linger.ms": 2_000})
        # Records that wait for the topic's metadata are moved to their partition one by one: a flush meanwhile would
        # send them one by one too.
        producer.list_topics(topic, timeout=DEADLINE_S)
        offsets: list[int] = []

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is not None:
                raise confluent_kafka.KafkaException(error)
            offsets.append(_int(message.offset()))

        for record in records:
            producer.produce(
                topic,
                partition=partition,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=record.timestamp,
                on_delivery=delivered,
            )
        assert producer.flush(DEADLINE_S) == 0
        return offsets

    def as_written(self, record: Record) -> Record:
        return record

    def read(self, topic: str, starts: Mapping[int, int], count: int) -> list[Received]:
        consumer = self._consumer()
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, p, at) for p, at in starts.items()])
            received: list[Received] = []
            deadline = Deadline(f"read {count} records of {topic}")
            while len(received) < count:
                deadline.check()
                for message in consumer.consume(count, timeout=0.2):
                    received.append(_received(message))
            return received
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = self._consumer()
        try:
            asked = [confluent_kafka.TopicPartition(topic, partition, timestamp)]
            (found,) = consumer.offsets_for_times(asked, timeout=DEADLINE_S)
            if found.error is not None:
                raise confluent_kafka.KafkaException(found.error)
            return None if found.offset == confluent_kafka.OFFSET_END else found.offset
        finally:
            consumer.close()

    def _consumer(self) -> confluent_kafka.Consumer:
        # Consumer() insists on a group.id, even where partitions are assigned by hand.
        return confluent_kafka.Consumer({**self._servers, "group.id": "unused", "enable.auto.commit": False})


def _received(message: confluent_kafka.Message) -> Received:
    if (error := message.error()) is not None:
        raise confluent_kafka.KafkaException(error)
    _, timestamp = message.timestamp()
    record = Record(timestamp, message.key(), message.value(), _headers(message))
    return Received(_int(message.partition()), _int(message.offset()), record)


def _headers(message: confluent_kafka.Message) -> Headers:
    return tuple(cast("list[tuple[str, bytes | None]]", message.headers() or []))


def _int(number: int | None) -> int:
    assert number is not None
    return number
