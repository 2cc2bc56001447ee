"""The shard of a group moves in the moment of an assignment, and its members read on.

librdkafka asks for committed offsets once the application has taken the assignment. The broker that it asks was fenced
just before. An answer that librdkafka does not retry would leave the member without records for ever.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from harness.patience import eventually
from tests.support.coordinating import coordinator_of, fence
from tests.support.running import Running

PROMISES = ("K8", "K9", "K10")

TOPIC, PARTITIONS, RECORDS = "t", 4, 40
PROTOCOLS = ("classic", "consumer")
SETTINGS = """\
[groups]
initial_rebalance_delay_ms = 0
consumer_heartbeat_interval_ms = 500
"""


class Reader(threading.Thread):
    """A member that takes its first assignment only when the test says so."""

    def __init__(self, bootstrap: str, group: str, protocol: str) -> None:
        super().__init__(name=group)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "error",
                "log_level": 0,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self.assigned, self.go_on, self.over = threading.Event(), threading.Event(), threading.Event()
        self.seen: set[tuple[int, int]] = set()
        self.problems: list[str] = []

    def run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        while not self.over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.seen.add((message.partition() or 0, message.offset() or 0))
            elif message is not None:
                self.problems.append(str(message.error()))
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned.set()
        self.go_on.wait(120)


def commit_beginnings(bootstrap: str, group: str) -> None:
    """Commit offset 1 of every partition. A reader that is not told so fails: it has no other place to begin."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})

    def commits() -> bool:
        try:
            offsets = [TopicPartition(TOPIC, partition, 1) for partition in range(PARTITIONS)]
            return all(told.error is None for told in consumer.commit(offsets=offsets, asynchronous=False) or [])
        except KafkaException:
            return False

    try:
        eventually(commits, f"offsets of {group} are committed")
    finally:
        consumer.close()


@pytest.mark.timeout(180)
def test_a_shard_that_moves_at_an_assignment_leaves_no_member_behind(tmp_path: Path) -> None:
    with Running(tmp_path, brokers=2, settings=SETTINGS) as server:
        server.create(TOPIC, PARTITIONS)
        producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        node = coordinator_of(server, "g0")
        names = (f"g{number}" for number in range(1000))
        alike = (name for name in names if coordinator_of(server, name) == node)
        readers = [Reader(server.bootstrap, next(alike), protocol) for protocol in PROTOCOLS]
        for reader in readers:
            commit_beginnings(server.bootstrap, reader.name)
            reader.start()
        try:
            for reader in readers:
                eventually(reader.assigned.is_set, f"{reader.name} has an assignment", 60)
            fence(server, node)
            for reader in readers:
                reader.go_on.set()
            wanted = {(number % PARTITIONS, number // PARTITIONS) for number in range(PARTITIONS, RECORDS)}
            for reader in readers:
                eventually(lambda reader=reader: reader.seen == wanted, f"{reader.name} reads all", 60)
        finally:
            for reader in readers:
                reader.go_on.set()
                reader.over.set()
            for reader in readers:
                reader.join(60)
        assert [reader.problems for reader in readers] == [[], []]
