"""The broker that coordinates a group is killed again and again, and the group goes on where it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from harness.patience import eventually
from tests.support.coordinating import coordinator_of
from tests.support.running import Running

PROMISES = ("K8", "K9", "K10")

pytestmark = pytest.mark.long
PARTITIONS, RECORDS, KILLS = 6, 1_200, 2
UNANSWERED = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.STALE_MEMBER_EPOCH)
"""Nobody answered, or the member has not heard of its new epoch yet: its coordinator died before it said so."""
SETTINGS = (
    "[groups]\ninitial_rebalance_delay_ms = 100\nmin_session_timeout_ms = 3000\nconsumer_heartbeat_interval_ms = 500\n"
)


class Readers:
    """Members of one group that commit after every record; what they saw, and what was acknowledged."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self._topic = f"records-{protocol}"
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": f"readers-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
        }
        if protocol == "classic":
            self._settings |= {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.seen: dict[tuple[int, int], int] = {}
        self.committed: dict[int, int] = {}
        self.problems: list[str] = []

    def run(self) -> None:
        consumer = Consumer(self._settings)
        try:
            consumer.subscribe([self._topic], on_assign=self._assigned)
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
            [told] = consumer.commit(offsets=[TopicPartition(self._topic, partition, offset)], asynchronous=False) or []
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
            if error.args[0].code() not in UNANSWERED:
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


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(first, first + count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("coordinators"), brokers=3, settings=SETTINGS) as running:
        yield running


@pytest.mark.timeout(240)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_outlives_its_coordinators(server: Running, protocol: str) -> None:
    topic, group = f"records-{protocol}", f"readers-{protocol}"

    server.create(topic, PARTITIONS)
    readers = Readers(server.bootstrap, protocol)
    part = RECORDS // (KILLS + 1)
    with readers.members(3):
        for kill in range(KILLS + 1):
            produce(server.bootstrap, topic, kill * part, part)
            wanted = (kill + 1) * part if kill == KILLS else kill * part + part // 2
            eventually(lambda wanted=wanted: len(readers.seen) >= wanted, f"{wanted} records are read", 60)
            if kill < KILLS:
                server.broker(coordinator_of(server, group)).kill()
    assert readers.problems == []
    assert set(readers.seen) == {(n % PARTITIONS, n // PARTITIONS) for n in range(RECORDS)}
    committed = server.ask(lambda client: client.committed_offsets(group))
    assert all(committed[(topic, partition)] >= offset for partition, offset in readers.committed.items())
