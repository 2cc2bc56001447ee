"""One topic with everything that is easily lost, settled and out of the WAL, for whoever reads it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from harness.headwater import Headwater
from harness.storage import Place

TOPIC = "web.clicks-v2"
PARTITIONS = 3
RECORDS = 6_000
OURS = ("_data/", "_iceberg/", "_delta_log/")
START_MS = 1_700_000_000_000
Sent = tuple[int, int, bytes | None, bytes | None, list[tuple[str, str | bytes | None]], int]
"""Partition, offset, key, value, headers, timestamp."""


def odd(i: int) -> dict[str, Any]:
    """Records with everything that is easily lost: nulls, empties, duplicate headers, clocks that run backwards."""
    return {
        "key": (None, b"", b"k%d" % i)[i % 3],
        "value": (b"v%d" % i, b"", None, b"\xff\x00" * (i % 40))[i % 4],
        "headers": [("h", b"1"), ("h", b"2"), ("null", None), ("empty", b"")][: i % 5],
        "timestamp": START_MS + (i * 7919) % 100_000,
    }


def produced(server: Headwater) -> list[Sent]:
    """What was produced, settled, and has left the WAL."""
    forever = ["--config", "retention.ms=-1"]  # the records are years old
    server.cli("topic", "create", TOPIC, "--partitions", str(PARTITIONS), *forever, "--bootstrap", server.bootstrap)
    done: list[Sent] = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5, "compression.type": "zstd"})

    def note(i: int) -> Any:
        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            record = odd(i)
            done.append(
                (message.partition(), message.offset(), record["key"], record["value"], record["headers"],
                 record["timestamp"])
            )  # fmt: skip

        return delivered

    for i in range(RECORDS):
        producer.produce(TOPIC, partition=i % PARTITIONS, on_delivery=note(i), **odd(i))
        if i % 1_000 == 999:
            producer.flush(60)
    assert producer.flush(60) == 0
    server.table("settle", TOPIC, "--timeout", "240")
    server.wait_for_collection()
    return sorted(done, key=lambda record: record[:2])


def check_consumer(place: Place, sent: list[Sent]) -> None:
    """A consumer gets every byte of every record, from any offset on."""
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": "x", "enable.auto.commit": False})
    try:
        for partition in range(PARTITIONS):
            wanted = [record for record in sent if record[0] == partition]
            for start in (0, 1, 1_234, len(wanted) - 1):
                consumer.assign([TopicPartition(TOPIC, partition, start)])
                got: list[Sent] = []
                while len(got) < len(wanted) - start:
                    for message in consumer.consume(len(wanted) - start - len(got), timeout=0.1):
                        assert not message.error(), message.error()
                        number, offset, headers = message.partition(), message.offset(), message.headers() or []
                        assert number is not None and offset is not None and isinstance(headers, list)
                        got.append((number, offset, message.key(), message.value(), headers, message.timestamp()[1]))
                assert got == wanted[start:]
    finally:
        consumer.close()
