"""MirrorMaker 2 copies several partitions of Apache Kafka into Headwater, with checkpoints and heartbeats.

All records come, in the order of their partitions. A group stops at the source and goes on here at its translated
offsets: it misses no record.

python -m tests.soak.mirror_maker --records 60000 --seed 1
"""

from __future__ import annotations

import argparse
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.mirror_maker import CHECKPOINTS, SOURCE, MirrorMaker
from harness import kafka
from harness.headwater import Headwater
from harness.patience import Patience, eventually
from tests.faults.linking import consume, create_topic, ends, fill, seen
from tests.soak.common import Verdict, workplace

PROMISES = ("K16",)

TOPIC, GROUP = "orders", "shop"
PARTITIONS = 6
READ = 500
"""Records that the group reads at the source."""
WAIT_SECONDS = 300.0


def content(bootstrap: str, topic: str) -> dict[int, list[tuple[Any, ...]]]:
    """The records of each partition, without their offsets."""
    return {partition: [line[1:] for line in lines] for partition, lines in seen(bootstrap, topic, PARTITIONS).items()}


def translated(bootstrap: str, topic: str) -> dict[int, int]:
    """The offsets that the group has here."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        found = consumer.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], timeout=30)
        return {one.partition: one.offset for one in found if one.offset >= 0}
    except KafkaException:
        return {}
    finally:
        consumer.close()


def goes_on(bootstrap: str, topic: str, records: int) -> set[bytes | None]:
    """The values of the next records of the group."""
    options = {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    consumer = Consumer({**options, "auto.offset.reset": "earliest"})
    found: list[bytes | None] = []
    patience = Patience(WAIT_SECONDS)
    try:
        consumer.subscribe([topic])
        while len(found) < records and not patience.ended:
            found += [message.value() for message in consumer.consume(1_000, 0.5) if message.error() is None]
    finally:
        consumer.close()
    return set(found)


def has_records(bootstrap: str, topic: str) -> bool:
    try:
        return sum(ends(bootstrap, topic, 1)) > 0
    except KafkaException:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    verdict = Verdict(f"MirrorMaker 2 into Headwater, {options.records:,} records")
    with (
        workplace("mirror") as directory,
        kafka.Kafka(directory / "kafka", settings=kafka.QUICK_GROUPS, heap=kafka.SMALL) as source,
        Headwater(directory / "headwater") as server,
        MirrorMaker(directory / "mirror", source.bootstrap, server.bootstrap) as maker,
    ):
        _run(options, verdict, source, server, maker)
    verdict.leave()


def _run(
    options: argparse.Namespace, verdict: Verdict, source: kafka.Kafka, server: Headwater, maker: MirrorMaker
) -> None:
    create_topic(source.bootstrap, TOPIC, PARTITIONS)
    copy = maker.mirror(TOPIC, tasks=2, committed=True)
    maker.heartbeats()
    maker.checkpoints(GROUP)
    fill(source.bootstrap, TOPIC, PARTITIONS, options.records // 2, options.seed)
    eventually(lambda: has_records(server.bootstrap, copy), "records are copied", WAIT_SECONDS, 1.0)
    read = consume(source.bootstrap, TOPIC, GROUP, READ)
    fill(source.bootstrap, TOPIC, PARTITIONS, options.records // 2, options.seed + 1)
    wanted = content(source.bootstrap, TOPIC)

    def all_there() -> bool:
        try:
            found = seen(server.bootstrap, copy, PARTITIONS)
        except KafkaException:
            return False
        return sum(map(len, found.values())) >= sum(map(len, wanted.values()))

    eventually(all_there, "all records are copied", WAIT_SECONDS, 1.0)
    found = content(server.bootstrap, copy)
    verdict.fact("committed records of the source", sum(map(len, wanted.values())))
    verdict.rule("partitions that differ", sum(found[p] != wanted[p] for p in wanted), 0)
    eventually(lambda: has_records(server.bootstrap, "heartbeats"), "heartbeats come", WAIT_SECONDS, 1.0)
    checkpoints = f"{SOURCE}.checkpoints.internal"
    eventually(lambda: has_records(server.bootstrap, checkpoints), "checkpoints come", WAIT_SECONDS, 1.0)
    eventually(lambda: translated(server.bootstrap, copy), "the group's offsets are there", WAIT_SECONDS, 1.0)
    maker.forget(CHECKPOINTS)
    offsets = translated(server.bootstrap, copy)
    verdict.fact("translated offsets of the group", str(offsets))
    begins = sum(offsets.values())
    verdict.floor("offsets that the group need not read again", begins, 1)
    verdict.rule("offsets beyond what the group had read", begins - READ, 0)
    rest = goes_on(server.bootstrap, copy, sum(ends(server.bootstrap, copy, PARTITIONS)) - begins)
    missing = {line[2] for lines in wanted.values() for line in lines} - {value for _, value in read} - rest
    verdict.rule("records that the group never saw", len(missing), 0)


if __name__ == "__main__":
    main()
