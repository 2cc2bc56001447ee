"""K8, K9, K10: the broker that coordinates a group is killed again and again, and the group goes on where it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headwater.client.client import Client
from tests.faults.running import Running
from tests.support.patience import eventually

TOPIC, GROUP = "records", "readers"
PARTITIONS, RECORDS, KILLS = 6, 1_800, 2
SETTINGS = "[groups]\ninitial_rebalance_delay_ms = 100\nconsumer_heartbeat_interval_ms = 500\n"


class Readers:
    """Members of one group that commit after every record; what they saw, and what was acknowledged."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
        }
        if protocol == "classic":
            self._settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.seen: dict[tuple[int, int], int] = {}
        self.committed: dict[int, int] = {}
        self.problems: list[str] = []

    def run(self) -> None:
        consumer = Consumer(self._settings)
        try:
            consumer.subscribe([TOPIC], on_assign=self._assigned)
            while not self._stop.is_set():
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                partition, offset = message.partition() or 0, message.offset() or 0
                with self._lock:
                    self.seen[(partition, offset)] = self.seen.get((partition, offset), 0) + 1
                self._commit(consumer, partition, offset + 1)
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.problems.append(repr(error))
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, partition: int, offset: int) -> None:
        try:
            [told] = consumer.commit(offsets=[TopicPartition(TOPIC, partition, offset)], asynchronous=False) or []
        except KafkaException:
            return  # not a member any more, or nobody coordinates right now: the record is read again
        if told.error is None:
            with self._lock:
                self.committed[partition] = max(self.committed.get(partition, 0), offset)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """What was acknowledged before a partition was assigned must be what is committed then."""
        with self._lock:
            expected = dict(self.committed)
        try:
            for found in consumer.committed(partitions, timeout=20):
                if found.error is None and max(found.offset, 0) < expected.get(found.partition, 0):
                    self.problems.append(f"partition {found.partition} went back to {found.offset} from {expected}")
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                self.problems.append(repr(error))

    @contextmanager
    def members(self, count: int) -> Iterator[None]:
        threads = [threading.Thread(target=self.run, name=f"member-{i}") for i in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()


def produce(bootstrap: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(first, first + count):
        producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_outlives_its_coordinators(tmp_path: Path, protocol: str) -> None:
    with Running(tmp_path, brokers=3, settings=SETTINGS) as server:
        server.create(TOPIC, PARTITIONS)
        readers = Readers(server.bootstrap, protocol)
        part = RECORDS // (KILLS + 1)
        with readers.members(3):
            for kill in range(KILLS + 1):
                produce(server.bootstrap, kill * part, part)
                wanted = (kill + 1) * part if kill == KILLS else kill * part + part // 2
                eventually(lambda wanted=wanted: len(readers.seen) >= wanted, f"{wanted} records are read", 60)
                if kill < KILLS:
                    server.broker(server.ask(coordinator)).kill()
        assert readers.problems == []
        assert set(readers.seen) == {(n % PARTITIONS, n // PARTITIONS) for n in range(RECORDS)}
        committed = server.ask(committed_offsets)
        assert all(committed[(TOPIC, partition)] >= offset for partition, offset in readers.committed.items())


async def coordinator(client: Client) -> int:
    """The node that coordinates the group."""
    connection = await client.any_broker()
    answer = await client.retrying(lambda: connection.request(10, key_type=0, coordinator_keys=[GROUP], newest=4))
    node: int = answer.coordinators[0].node_id
    return node


async def committed_offsets(client: Client) -> dict[tuple[str, int], int]:
    return await client.committed_offsets(GROUP)
