"""`headwater up` with its objects in a real S3 server: outages, killed brokers, and what a record costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from harness.patience import eventually
from harness.s3 import PROGRAM, S3Server
from harness.tools import needs
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("M7", "L1")

TOPIC = "kept"


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    needs("versitygw: run scripts/setup-tools s3", PROGRAM.exists())
    (tmp_path / "s3").mkdir()
    with S3Server(tmp_path / "s3") as server:
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        yield server


def started(directory: Path, server: S3Server) -> Running:
    """A broker that sends no object twice because the machine was slow: the tests count requests."""
    return Running(directory / "up", settings=f'objects = "{server.url}/cluster"\n[wal.cost]\nhedge_ms = 0\n')


def count(running: Running, name: str, operation: str) -> int:
    """One of the metrics of the object store."""
    found = re.findall(
        rf'^headwater_objects_{name}\{{node="1",operation="{operation}"\}} (\d+)$', running.page("/metrics")[1], re.M
    )
    return int(found[0])


def wal_gets(running: Running) -> int:
    """How many WAL objects the broker has read from the store."""
    [found] = re.findall(r'^headwater_wal_gets_total\{node="1"\} (\d+)$', running.page("/metrics")[1], re.M)
    return int(found)


class Writing:
    """An idempotent producer of numbered records that notes what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
        }
        self._producer = Producer(settings)
        self.sent = 0
        self.acknowledged: dict[int, bytes] = {}
        self.errors: list[str] = []

    def send(self, records: int) -> None:
        for number in range(self.sent, self.sent + records):
            self._producer.produce(TOPIC, value=b"%d" % number, partition=0, on_delivery=self._told)
        self.sent += records

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        offset, value = message.offset(), message.value()
        assert offset is not None and isinstance(value, bytes)
        self.acknowledged[offset] = value

    def poll(self) -> None:
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0


class Reading:
    """A consumer that keeps what it got."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
        self._consumer.subscribe([TOPIC])
        self.values: list[bytes] = []

    def has(self, records: int) -> bool:
        """Whether so many have come, after one more look."""
        for message in self._consumer.consume(500, 0.1):
            assert message.error() is None, message.error()
            value = message.value()
            assert isinstance(value, bytes)
            self.values.append(value)
        return len(self.values) >= records

    def close(self) -> None:
        self._consumer.close()


@promise("M7", "L1", "L9")
def test_a_broker_on_s3(tmp_path: Path, s3: S3Server) -> None:
    """A tail costs no reads; produce and fetch outlive outages of S3, and a killed broker loses nothing."""
    with started(tmp_path, s3) as running:
        running.create(TOPIC)
        writing, tail = Writing(running.bootstrap), Reading(running.bootstrap, "tail")
        for _ in range(4):
            writing.send(500)
            writing.finish()
        eventually(lambda: tail.has(2000), "the tail is read", 60)
        tail.close()
        assert wal_gets(running) == 0, "what a broker wrote lately it serves from memory"
        assert 1 <= count(running, "requests_total", "create") <= 40, "a request for each record would be 2000"
        assert count(running, "errors_total", "create") == count(running, "retries_total", "create") == 0

        s3.kill()
        writing.send(500)
        eventually(lambda: writing.poll() or count(running, "retries_total", "create") >= 3, "puts are tried again")
        assert len(writing.acknowledged) == 2000
        s3.start()
        writing.finish()
        assert writing.errors == []
        assert writing.acknowledged == {n: b"%d" % n for n in range(2500)}

        running.broker(1).kill()
        eventually(lambda: running.epochs().get(1, 0) > 1, "the broker is back, with nothing in memory")
        s3.kill()
        late = Reading(running.bootstrap, "late")
        eventually(lambda: late.has(1) or count(running, "retries_total", "get") >= 2, "reads are tried again")
        assert late.values == []
        s3.start()
        eventually(lambda: late.has(2500), "the consumer has everything", 60)
        late.close()
        assert late.values == [b"%d" % n for n in range(2500)]
        assert count(running, "requests_total", "get") > 0, "it read from S3"
