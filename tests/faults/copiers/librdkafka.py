"""The copier with librdkafka."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.faults.copiers.common import (
    HEARTBEAT_MS,
    LINGER_MS,
    MOST_RECORDS,
    POLL_S,
    SESSION_MS,
    Failed,
    Job,
    Limited,
    Read,
    copy,
    say,
)

CALL_S = 10.0
LIMIT_S = 15.0
"""librdkafka 2.16 does not end send_offsets_to_transaction if the group's coordinator that it remembers left the
cluster, and keeps to no time-out (its issue 5511)."""
FROM_THE_START = 0


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except (KafkaException, BufferError, RuntimeError, TimeoutError) as error:
        raise Failed(repr(error)) from error


class Librdkafka:
    """librdkafka's consumer and producer."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._limited = Limited(LIMIT_S)
        self._producers: list[Producer] = []
        """All that were made. To destroy one would wait for its last call."""
        self._producer = self._first()
        self._consumer = Consumer(
            {
                "bootstrap.servers": job.bootstrap,
                "client.id": job.id,
                "group.id": job.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": "range",
            }
        )
        self._consumer.subscribe([job.source])

    def _made(self) -> Producer:
        made = Producer(
            {
                "bootstrap.servers": self._job.bootstrap,
                "client.id": self._job.id,
                "transactional.id": self._job.id,
                "transaction.timeout.ms": self._job.timeout_ms,
                "linger.ms": LINGER_MS,
            }
        )
        self._producers.append(made)
        with _failing():
            self._retried(made.init_transactions)
        return made

    def _first(self) -> Producer:
        while True:
            try:
                return self._made()
            except Failed as error:
                say("again", error)

    def _retried(self, call: Any, *arguments: Any) -> None:
        """Call again while the client says that the same call may succeed."""
        while True:
            try:
                self._limited(call, *arguments, CALL_S)
                return
            except KafkaException as problem:
                if not problem.args[0].retriable():
                    raise
                say("again", problem)

    def poll(self) -> Sequence[Read]:
        with _failing():
            found = self._consumer.consume(MOST_RECORDS, POLL_S)
        for message in found:
            error = message.error()
            if error is not None and error.code() not in (KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN):
                say("again", error)
        return [_read(message) for message in found if message.error() is None]

    def has_partitions(self) -> bool:
        return bool(self._consumer.assignment())

    def begin(self) -> None:
        with _failing():
            self._producer.begin_transaction()

    def send(self, partition: int, key: bytes, value: bytes) -> None:
        with _failing():
            self._producer.produce(self._job.target, value, key, partition)

    def stage(self, ends: Mapping[int, int]) -> None:
        places = [TopicPartition(self._job.source, partition, end) for partition, end in ends.items()]
        with _failing():
            self._retried(self._producer.send_offsets_to_transaction, places, self._consumer.consumer_group_metadata())
            # An abort would drop what is not sent yet.
            self._producer.flush(CALL_S)

    def commit(self) -> None:
        with _failing():
            self._retried(self._producer.commit_transaction)

    def abort(self) -> None:
        with _failing():
            self._retried(self._producer.abort_transaction)

    def renew(self) -> None:
        self._producer = self._made()

    def rewind(self) -> None:
        with _failing():
            for place in self._consumer.committed(self._consumer.assignment(), CALL_S):
                start = place.offset if place.offset >= 0 else FROM_THE_START
                self._consumer.seek(TopicPartition(place.topic, place.partition, start))

    def close(self) -> None:
        self._consumer.close()


def _read(message: confluent_kafka.Message) -> Read:
    partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
    assert partition is not None and offset is not None and isinstance(key, bytes) and value is not None
    return Read(partition, offset, key, value)


if __name__ == "__main__":
    arguments = Job.of(sys.argv[1:])
    copy(arguments, Librdkafka(arguments))
