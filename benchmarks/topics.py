"""Topics of a server under test, by its own admin protocol."""

from __future__ import annotations

import os
import time

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from benchmarks.systems import BenchError, System

METADATA_TIMEOUT = 30.0
STALE = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
"""Answers of a server whose metadata is ahead of its partitions."""
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def quiet() -> None:
    """Writes back dirty pages: what one phase or system left is not to slow the next one's fsync."""
    os.sync()
    time.sleep(0.5)


class Topics:
    """Creates topics, and counts what they hold."""

    def __init__(self, server: System) -> None:
        self._server = server
        # librdkafka would log the loss of its connections when the server is stopped.
        self._admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})

    def __repr__(self) -> str:
        return f"<Topics of {self._server!r}>"

    def create(self, topic: str, partitions: int) -> None:
        """Creates a topic, waits until metadata shows a leader for each partition, then waits for quiet."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        try:
            for created in self._admin.create_topics([new], request_timeout=METADATA_TIMEOUT).values():
                created.result()
        except KafkaException as error:
            raise BenchError(f"{self._server.title}: cannot create {topic}: {error}") from error
        deadline = time.monotonic() + METADATA_TIMEOUT
        while time.monotonic() < deadline:
            found = self._admin.list_topics(topic, timeout=METADATA_TIMEOUT).topics[topic].partitions
            if len(found) == partitions and all(entry.leader >= 0 for entry in found.values()):
                quiet()
                return
            time.sleep(0.05)
        raise BenchError(f"{self._server.title}: {topic} had no leaders after {METADATA_TIMEOUT:.0f} s")

    def delete(self, topic: str) -> None:
        """Deletes a topic; the server may free its disk later."""
        try:
            for deleted in self._admin.delete_topics([topic], request_timeout=METADATA_TIMEOUT).values():
                deleted.result()
        except KafkaException as error:
            raise BenchError(f"{self._server.title}: cannot delete {topic}: {error}") from error

    def records(self, topic: str, partitions: int) -> int:
        """What the ends of the partitions' logs add up to. Leaders of a new topic may not answer at once."""
        wanted = {TopicPartition(topic, partition): LATEST for partition in range(partitions)}
        deadline = time.monotonic() + METADATA_TIMEOUT
        while True:
            try:
                found = self._admin.list_offsets(wanted, request_timeout=METADATA_TIMEOUT)
                return sum(int(end.result().offset) for end in found.values())
            except KafkaException as error:
                if error.args[0].code() not in STALE or time.monotonic() > deadline:
                    raise BenchError(f"{self._server.title}: cannot look up the end of {topic}: {error}") from error
                time.sleep(0.05)
