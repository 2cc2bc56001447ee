"""Transactions of librdkafka: producers that note what became of each record, and a reader of either isolation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import confluent_kafka as ck

PLAIN = ""
"""The name of the producer without a transactional id."""
TIMEOUT_MS = 900_000
"""The longest that brokers allow by default: no broker ends a transaction of a test."""
CALL_SECONDS = 60.0
Record = tuple[int, int, int, bytes | None, bytes | None]
"""Partition, offset, timestamp, key, value."""


class Writers:
    """Producers by their transactional id, and one without. They note which records are committed."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[str, ck.Producer] = {}
        self._open: dict[str, list[tuple[str, Record]]] = {}
        self._committed: dict[str, list[Record]] = defaultdict(list)

    def __repr__(self) -> str:
        return f"<Writers, open transactions of {', '.join(self._open) or 'nobody'}>"

    @property
    def open(self) -> list[str]:
        """The ids whose transactions have begun and have not ended."""
        return list(self._open)

    def producer(self, id: str) -> ck.Producer:
        """The producer of an id; it starts when it is first asked for."""
        if id not in self._producers:
            own = {"transactional.id": id, "transaction.timeout.ms": TIMEOUT_MS} if id else {}
            made = ck.Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, **own})
            if id:
                made.init_transactions(CALL_SECONDS)
            self._producers[id] = made
        return self._producers[id]

    def write(self, id: str, topic: str, partition: int, *values: bytes, timestamp: int = 0) -> list[int]:
        """Write records, each a millisecond younger than the one before it; returns their offsets.

        The first records of an id after its last transaction begin the next one.
        """
        producer, done = self.producer(id), list[Record]()
        self._begin(id)

        def note(error: Any, message: Any) -> None:
            assert error is None, error
            done.append((message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value()))

        for i, value in enumerate(values):
            producer.produce(topic, value, id or None, partition, on_delivery=note, timestamp=timestamp + i)
        assert producer.flush(CALL_SECONDS) == 0
        assert len(done) == len(values)
        if id:
            self._open[id] += [(topic, record) for record in done]
        else:
            self._committed[topic] += done
        return [record[1] for record in done]

    def stage(self, id: str, group: str, topic: str, offsets: Sequence[int]) -> None:
        """Make offsets of a group, by partition, part of the transaction."""
        producer = self.producer(id)
        self._begin(id)
        consumer = ck.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        places = [ck.TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), CALL_SECONDS)
        consumer.close()

    def _begin(self, id: str) -> None:
        if id and id not in self._open:
            self.producer(id).begin_transaction()
            self._open[id] = []

    def end(self, id: str, *, commit: bool) -> None:
        """Commit or abort the transaction of an id."""
        producer = self.producer(id)
        if commit:
            producer.commit_transaction(CALL_SECONDS)
        else:
            producer.abort_transaction(CALL_SECONDS)
        for topic, record in self._open.pop(id):
            if commit:
                self._committed[topic].append(record)

    def committed(self, topic: str) -> list[Record]:
        """The committed records of a topic, by partition and offset."""
        return sorted(self._committed[topic], key=lambda record: record[:2])


def messages(bootstrap: str, topic: str, starts: Sequence[int], isolation: str = "read_committed") -> list[ck.Message]:
    """All that a consumer gets of a topic, by partition and offset, from an offset of each partition on."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True,
            "enable.auto.commit": False, "isolation.level": isolation, "fetch.wait.max.ms": 50,
        }
    )  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, partition, start) for partition, start in enumerate(starts)])
    found, ended = list[ck.Message](), set[int]()
    while len(ended) < len(starts):
        message = consumer.poll(CALL_SECONDS)
        assert message is not None, f"{topic} is not read to its end"
        error, partition = message.error(), message.partition()
        if error is None:
            found.append(message)
        else:
            assert error.code() == ck.KafkaError._PARTITION_EOF, error
            assert partition is not None
            ended.add(partition)
    consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def read(bootstrap: str, topic: str, starts: Sequence[int], isolation: str = "read_committed") -> list[Record]:
    """The same, as records."""
    return [_record(message) for message in messages(bootstrap, topic, starts, isolation)]


def _record(message: ck.Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return partition, offset, message.timestamp()[1], message.key(), message.value()
