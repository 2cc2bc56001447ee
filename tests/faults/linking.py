"""A source Kafka with all kinds of records, a Headwater that copies it, and both compared record by record."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from harness.headwater import Headwater
from harness.patience import Patience, eventually

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUICK_LINKS = """
process_session_ms = 15000

[links]
metadata_ms = 1000
groups_ms = 500
fetch_wait_ms = 100
request_ms = 2000
check_ms = 100
lease_ms = 1000
retry_longest_ms = 500
breaker_failures = 2
breaker_open_ms = 500
"""
"""Settings with which links notice soon what happens."""

Copied = dict[int, list[tuple[Any, ...]]]
"""By partition, what clients see of each record: offset, timestamp, key, value and headers."""


def create_topic(bootstrap: str, name: str, partitions: int, **configs: str) -> None:
    """Create a topic in the source."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, 1, config=configs)], operation_timeout=30)
    for future in made.values():
        future.result()


def fill(
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    seed: int,
    codecs: Sequence[str] = CODECS,
    *,
    keyed: bool = False,
) -> None:
    """Produce plain, committed and aborted records with every codec, over all partitions.

    A fifth of the records has no key, or if all are to be `keyed` one that no other has.
    """
    chance = random.Random(seed)
    share = records // len(codecs)
    for codec in codecs:
        options = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 2}
        plain = Producer({**options, "enable.idempotence": True})
        within = Producer({**options, "transactional.id": f"{topic}-{codec}-{seed}"})
        within.init_transactions(30)
        for _ in range(share // 500):
            _produce(plain, topic, partitions, 200, chance, keyed=keyed)
            within.begin_transaction()
            _produce(within, topic, partitions, 300, chance, keyed=keyed)
            within.flush(30)
            if chance.random() < 0.3:
                within.abort_transaction(30)
            else:
                within.commit_transaction(30)
        plain.flush(30)


def _produce(
    producer: Producer, topic: str, partitions: int, records: int, chance: random.Random, *, keyed: bool
) -> None:
    for _ in range(records):
        value = chance.randbytes(20) + b"x" * chance.randrange(60)
        rare = chance.randbytes(8) if keyed else None
        key = b"%d" % chance.randrange(1000) if chance.random() < 0.8 else rare
        headers: list[tuple[str, str | bytes | None]] | None = (
            [("h", chance.randbytes(3))] if chance.random() < 0.1 else None
        )
        producer.produce(topic, value, key, partition=chance.randrange(partitions), headers=headers)
        producer.poll(0)


def seen(bootstrap: str, topic: str, partitions: int) -> Copied:
    """All committed records of a topic, as a client sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "looks",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: Copied = {partition: [] for partition in range(partitions)}
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        left = set(range(partitions))
        while left:
            for message in consumer.consume(10_000, 0.1):
                error, partition = message.error(), message.partition()
                if error is None:
                    assert partition is not None
                    found[partition].append(
                        (message.offset(), message.timestamp(), message.key(), message.value(), message.headers())
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    assert partition is not None
                    left.discard(partition)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def ends(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Where readers of committed records stop in each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks", "isolation.level": "read_committed"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
            for partition in range(partitions)
        ]
    finally:
        consumer.close()


def create_link(server: Headwater, name: str, source: str, *options: str) -> None:
    """Create a link by the command line."""
    server.cli("link", "create", name, "--source", source, *options, "--config", str(server.config))


def until_copied(server: Headwater, source: str, topic: str, partitions: int, seconds: float = 60.0) -> None:
    """Wait until the log here ends where that of the source ends."""

    def reached() -> bool:
        with suppress(KafkaException):  # a topic that was just created is not known everywhere yet
            return ends(server.bootstrap, topic, partitions) == ends(source, topic, partitions)
        return False

    eventually(reached, f"{topic} is copied", seconds, 0.1)


def kill_while_it_copies(server: Headwater, source: str, topic: str, partitions: int, records: int, times: int) -> None:
    """Kill link processes, each while it copies: records arrive all the time, and it has copied some of them."""
    for number in range(times):
        before = reached(server, topic, partitions)
        filling = Thread(target=fill, args=(source, topic, partitions, records // times, number + 2))
        filling.start()
        try:
            eventually(lambda before=before: reached(server, topic, partitions) > before, "records arrive", 60, 0.01)  # type: ignore[misc]
            kill_link(server)
        finally:
            filling.join()


def kill_link(server: Headwater) -> None:
    """Kill the link process of `headwater up`, which starts another one."""
    process = server.link_process()
    with suppress(psutil.NoSuchProcess):
        process.kill()
        process.wait(30)


def reached(server: Headwater, topic: str, partitions: int) -> int:
    """How many offsets are copied."""
    with suppress(KafkaException):
        return sum(ends(server.bootstrap, topic, partitions))
    return -1


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    """Delete the records of the first partition before an offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, before)], operation_timeout=30).values():
        future.result()


def produce(bootstrap: str, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Produce records to a partition, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap})
    failures: list[Any] = []
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: failures.append(error))
    producer.flush(60)
    assert failures == [None] * len(values), failures


def rewrite(bootstrap: str, topic: str, records: int, keys: int) -> None:
    """Produce records of a few keys again and again to the first partition, in small batches and many segments."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 20, "linger.ms": 1})
    for number in range(records):
        producer.produce(topic, b"%d" % number, b"%d" % (number % keys), partition=0)
        if number % 50 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def committed(bootstrap: str, topic: str, group: str) -> int:
    """The committed offset of a group in the first partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        return int(found.offset)
    finally:
        consumer.close()


def consume(bootstrap: str, topic: str, group: str, records: int) -> list[tuple[int, bytes]]:
    """Offsets and values of the next records of a group, which then commits them and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    found: list[tuple[int, bytes]] = []
    patience = Patience(60)
    try:
        consumer.subscribe([topic])
        while len(found) < records and not patience.ended:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            offset, value = message.offset(), message.value()
            assert offset is not None and value is not None
            found.append((offset, value))
            consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()
    return found
