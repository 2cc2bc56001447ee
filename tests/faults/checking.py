"""What was acknowledged, what is there, and whether the two agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka

from harness.patience import Patience
from tests.faults.producing import ACK, parse

READ_SECONDS = 60.0
LOST_CONNECTIONS = {
    confluent_kafka.KafkaError._TRANSPORT,
    confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    confluent_kafka.KafkaError._DESTROY_BROKER,
}
"""The last one: the cluster no longer names a broker that was just asked."""


def acknowledged(file: Path) -> dict[int, tuple[int, int]]:
    """Partition and offset of every acknowledged record, by counter; a line cut short by a crash does not count."""
    if not file.exists():
        return {}
    data = file.read_bytes()
    whole = len(data) - len(data) % ACK.size
    return {counter: (partition, offset) for partition, counter, offset in ACK.iter_unpack(data[:whole])}


def acknowledged_count(*files: Path) -> int:
    """How many acknowledgements are written down so far."""
    return sum(file.stat().st_size // ACK.size for file in files if file.exists())


@dataclass(slots=True)
class Log:
    """A topic as a consumer reads it."""

    places: dict[str, dict[int, tuple[int, int]]] = field(default_factory=lambda: defaultdict(dict))
    """Per producer: partition and offset of each counter."""
    doubled: list[tuple[str, int]] = field(default_factory=list)
    disordered: list[tuple[str, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offsets that did not follow the one before them."""
    count: int = 0

    def check(self, **acks: dict[int, tuple[int, int]]) -> None:
        """Nothing lost, doubled or out of order; every record lies where its producer was told."""
        assert not self.doubled, f"{len(self.doubled)} doubled, first {self.doubled[:5]}"
        assert not self.disordered, f"{len(self.disordered)} out of order, first {self.disordered[:5]}"
        assert not self.gaps, f"offsets do not follow each other at {self.gaps[:5]}"
        for name, told in acks.items():
            there = self.places.get(name, {})
            lost = told.keys() - there.keys()
            assert not lost, f"{len(lost)} acknowledged records of {name} are lost, first {sorted(lost)[:5]}"
            moved = [counter for counter, place in told.items() if there[counter] != place]
            assert not moved, f"{len(moved)} records of {name} lie elsewhere than acknowledged, first {moved[:5]}"


@contextmanager
def suppress_lost_connections() -> Iterator[None]:
    """Errors that librdkafka makes itself while a broker goes away, as the end of a connection; clients try again."""
    try:
        yield
    except confluent_kafka.KafkaException as problem:
        error = problem.args[0]
        if error.code() not in LOST_CONNECTIONS or error.fatal():
            raise


def _judge(error: confluent_kafka.KafkaError) -> None:
    """Raise what came instead of a record, unless it is the end of a connection."""
    with suppress_lost_connections():
        raise confluent_kafka.KafkaException(error)


def read_log(bootstrap: str, topic: str, partitions: int) -> Log:
    """Read a topic from its start to its end with librdkafka."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
    )
    log = Log()
    last: dict[tuple[str, int], int] = {}
    patience = Patience(READ_SECONDS)
    try:
        ends: dict[int, int] = {}
        while len(ends) < partitions:
            assert not patience.ended, f"learned only {ends}"
            with suppress_lost_connections():
                low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, len(ends)), timeout=30)
                assert low == 0
                ends[len(ends)] = high
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
        positions = dict.fromkeys(ends, 0)
        while any(positions[p] < ends[p] for p in ends):
            assert not patience.ended, f"read only up to {positions} of {ends}"
            for message in consumer.consume(10_000, timeout=0.2):
                error = message.error()
                if error is not None:
                    _judge(error)
                    continue
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None and offset is not None and value is not None
                name, counter = parse(value)
                if offset != positions[partition]:
                    log.gaps.append((partition, offset))
                positions[partition] = offset + 1
                if counter in log.places[name]:
                    log.doubled.append((name, counter))
                elif counter <= last.get((name, partition), -1):
                    log.disordered.append((name, counter))
                log.places[name][counter] = (partition, offset)
                last[name, partition] = counter
                log.count += 1
        return log
    finally:
        consumer.close()
